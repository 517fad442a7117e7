// Runs before the first paint, so that a stored theme does not flash.
try {
  const theme = localStorage.getItem("waymaker-theme");
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
} catch {
  // A browser that blocks storage follows the theme of the system.
}
