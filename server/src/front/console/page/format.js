// Numbers, times and names as people read them.

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });

/** Keeps a number and its unit on one line. */
const NBSP = "\u00a0";

/** A count, such as `1,000,000`. */
export function count(number) {
  return WHOLE.format(number);
}

/** A count and its noun, such as `1 waiter` or `3 waiters`. */
export function counted(number, noun, plural = `${noun}s`) {
  return `${count(number)} ${number === 1 ? noun : plural}`;
}

/** A rate, such as `0.4`, `12.3` or `84,200`. */
export function rate(number) {
  return (number === 0 || number >= 100 ? WHOLE : TENTHS).format(number);
}

/** A share, such as `12 %`. */
export function percent(share) {
  return `${WHOLE.format(share * 100)}${NBSP}%`;
}

/** A span of time in milliseconds: two units at most. */
export function duration(ms) {
  if (ms < 0) return `0${NBSP}s`;
  if (ms < 1000) return `${Math.round(ms)}${NBSP}ms`;
  const seconds = ms / 1000;
  if (seconds < 10) return `${seconds.toFixed(1)}${NBSP}s`;
  if (seconds < 60) return `${Math.floor(seconds)}${NBSP}s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return join(minutes, "min", Math.floor(seconds % 60), "s");
  const hours = Math.floor(minutes / 60);
  if (hours < 24) return join(hours, "h", minutes % 60, "min");
  return join(Math.floor(hours / 24), "d", hours % 24, "h");
}

function join(large, largeUnit, small, smallUnit) {
  return small === 0 ? `${large}${NBSP}${largeUnit}` : `${large}${NBSP}${largeUnit}${NBSP}${small}${NBSP}${smallUnit}`;
}

/** A measured duration in nanoseconds, with three digits at most. */
export function measured(ns) {
  if (ns === null) return "–";
  if (ns < 1000) return `<${NBSP}1${NBSP}µs`;
  const [value, unit] = ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  if (unit === "s" && value >= 60) return duration(value * 1000);
  return `${value < 10 ? value.toFixed(1) : Math.round(value)}${NBSP}${unit}`;
}

/** A size in memory. */
export function bytes(size) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let step = 0;
  while (size >= 1024 && step < units.length - 1) {
    size /= 1024;
    step += 1;
  }
  return `${step === 0 || size >= 100 ? Math.round(size) : size.toFixed(1)}${NBSP}${units[step]}`;
}

/** The words of a name such as `session_ended`. */
export function words(name) {
  return name.replaceAll("_", " ");
}

/** A message of the server as a sentence: it begins with a capital letter and ends with a full stop. */
export function sentence(text) {
  const begun = text.charAt(0).toUpperCase() + text.slice(1);
  return /[.!?]$/.test(begun) ? begun : `${begun}.`;
}

/** The bytes of a text in hexadecimal digits. */
export function hexOf(text) {
  return Array.from(new TextEncoder().encode(text), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** The fragment of a view, such as `#/key?namespace=default&key_hex=6f`. */
export function fragment(view, parameters = {}) {
  const given = Object.entries(parameters).filter(([, value]) => value !== null && value !== undefined && value !== "");
  const query = new URLSearchParams(given).toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

/** The fragment of the view of one key. */
export function keyFragment(namespace, keyHex) {
  return fragment("key", { namespace, key_hex: keyHex });
}

/** The claims of each kind of namespace. */
const NOUNS = {
  flat: "lock",
  tree: "set of paths",
  registry: "registration",
  lazy: "registration",
  pool: "permits",
  limit: "claim",
};

export function nounOf(kind) {
  return NOUNS[kind] ?? "claim";
}
