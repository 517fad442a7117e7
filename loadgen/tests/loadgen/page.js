// Checks the page in each frame. The first line summarises the page; each further line is a complaint.
const CONTRAST_MIN = 4.5;
const FONT_PX_MIN = 9.5;

function channels(color) {
  const [red, green, blue, alpha = 1] = color.match(/[\d.]+/g).map(Number);
  return { alpha, light: [red, green, blue].map((value) => value / 255).map((value) =>
    value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4) };
}

function luminance({ light: [red, green, blue] }) {
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

function background(element, styleOf) {
  for (let at = element; at; at = at.parentElement) {
    const found = channels(styleOf(at).backgroundColor);
    if (found.alpha === 1) return found;
  }
  throw new Error("no background");
}

function overlap(one, other) {
  return one.left < other.right - 1 && other.left < one.right - 1 && one.top < other.bottom - 3 && other.top < one.bottom - 3;
}

function look(frame) {
  const { contentWindow: view, contentDocument: page } = frame;
  const styleOf = (element) => view.getComputedStyle(element);
  const complaints = [];
  for (const element of [page.documentElement, page.body]) {
    if (element.scrollWidth > view.innerWidth) complaints.push(`${element.tagName} is ${element.scrollWidth} wide`);
  }
  const plots = [...page.querySelectorAll("svg.plot")];
  for (const plot of plots) {
    const box = plot.getBoundingClientRect();
    const name = plot.getAttribute("aria-label").slice(0, 60);
    if (box.width < 200 || box.height < 30) complaints.push(`${name}: ${box.width} x ${box.height}`);
    const scale = box.width / plot.viewBox.baseVal.width;
    const texts = [...plot.querySelectorAll("text")].map((text) => ({ text, box: text.getBoundingClientRect() }));
    texts.forEach(({ text, box: own }, index) => {
      const size = parseFloat(styleOf(text).fontSize) * scale;
      if (size < FONT_PX_MIN) complaints.push(`${name}: "${text.textContent}" is ${size.toFixed(1)} px high`);
      if (own.left < box.left - 1 || own.right > box.right + 1 || own.top < box.top - 1 || own.bottom > box.bottom + 1) {
        complaints.push(`${name}: "${text.textContent}" is clipped`);
      }
      for (const other of texts.slice(0, index)) {
        if (overlap(own, other.box)) complaints.push(`${name}: "${text.textContent}" over "${other.text.textContent}"`);
      }
    });
  }
  const isSaid = (element) => [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  for (const element of [...page.body.querySelectorAll("*")].filter(isSaid)) {
    if (element.tagName === "title" || element.tagName === "SCRIPT") continue;
    const style = styleOf(element);
    const ink = luminance(channels(element.namespaceURI.endsWith("svg") ? style.fill : style.color));
    const paper = luminance(background(element, styleOf));
    const contrast = (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05);
    if (contrast < CONTRAST_MIN) complaints.push(`"${element.textContent.slice(0, 40)}": contrast ${contrast.toFixed(2)}`);
  }
  for (const element of page.querySelectorAll("script, [src], [onload], [onerror]")) complaints.push(`there is ${element.outerHTML}`);
  const isDark = view.matchMedia("(prefers-color-scheme: dark)").matches;
  if (isDark !== luminance(background(page.body, styleOf)) < 0.2) complaints.push("the theme is not the reader's");
  return { seen: `${view.innerWidth}: dark ${isDark}, plots ${plots.length}`, complaints: complaints.map((words) => `${view.innerWidth}: ${words}`) };
}

addEventListener("load", () => {
  const looks = [...document.querySelectorAll("iframe")].map(look);
  const findings = document.createElement("pre");
  findings.id = "findings";
  findings.textContent = `${looks.map(({ seen }) => seen).join("; ")}\n${looks.flatMap(({ complaints }) => complaints).join("\n")}`;
  document.body.append(findings);
});
