// The entry: views by fragment, the live stream, the search, the token and the theme.

import { escaped, h, setAttribute, setText, showTitle } from "./dom.js";
import { events, Live, token } from "./api.js";
import { History, GAP_MS } from "./history.js";
import { fragment, sentence } from "./format.js";
import { overview } from "./overview.js";
import { contention } from "./contention.js";
import { loadNamespaces, namespaces, waiters } from "./namespaces.js";
import { namespace } from "./locks.js";
import { key } from "./key.js";
import { askToken } from "./dialogs.js";

const VIEWS = { "": overview, contention, waiters, namespaces, namespace, key };
/** The entry of the navigation that a view belongs to. */
const ENTRIES = { "": "overview", namespace: "namespaces", key: "namespaces" };

const byId = (id) => document.getElementById(id);
const history = new History();
let view = null;
let closing = new AbortController();
let shownFragment = null;

/** Shows the view that the fragment of the address names. */
function route() {
  if (location.hash === shownFragment) return;
  const isFirst = shownFragment === null;
  shownFragment = location.hash;
  const [path, query = ""] = location.hash.replace(/^#\/?/, "").split(/\?(.*)/s);
  const name = Object.hasOwn(VIEWS, path) ? path : "";
  const parameters = new URLSearchParams(query);
  closing.abort();
  closing = new AbortController();
  view = VIEWS[name]({ parameters, signal: closing.signal, history });
  byId("main").replaceChildren(view.element);
  showTitle(view.title);
  const entry = ENTRIES[name] ?? name;
  for (const link of document.querySelectorAll("[data-nav]"))
    setAttribute(link, "aria-current", link.dataset.nav === entry ? "page" : null);
  if (parameters.has("namespace")) byId("search-namespace").value = parameters.get("namespace");
  if (history.latest) view.live?.(history.latest);
  if (!isFirst) {
    scrollTo({ top: 0 });
    view.element.querySelector("h1")?.focus({ preventScroll: true });
  }
}

function showEvent(event) {
  history.add(event);
  const name = event.identity === null ? (token.get() ? "Token set" : "No identity") : escaped(event.identity);
  setText(byId("identity"), name);
  byId("identity").title = event.identity === null ? "Set a token" : "Change or forget the token";
  view.live?.(event);
}

const live = new Live(showEvent, showConnection);

const STATES = { connecting: "Connecting", open: "Live", waiting: "Connection lost", paused: "Paused", denied: "No access" };

/** Shows the state of the live stream and the age of the data. */
function showConnection() {
  const age = live.lastEventAt === null ? null : performance.now() - live.lastEventAt;
  const late = live.state === "open" && age > GAP_MS;
  const broken = live.state === "waiting" || live.state === "denied" || late;
  setAttribute(byId("connection"), "data-state", late ? "late" : live.state);
  setText(byId("connection-text"), late ? "Late" : STATES[live.state]);
  setAttribute(document.body, "data-stale", (broken || live.state === "connecting") && age !== null);
  if (live.state === "connecting" && live.error) return;
  byId("stale").hidden = !broken;
  if (broken) setText(byId("stale-text"), staleText(late));
  if (live.state === "denied" && live.error.status === 401) setText(byId("identity"), "Token needed");
}

function staleText(late) {
  if (late) return "The server sends no new data. The values on this page are old.";
  const old = live.lastEventAt === null ? "" : " The values on this page are old.";
  if (live.state === "denied")
    return `${live.error.status === 401 ? "The server asks for a token." : sentence(live.error.message)}${old}`;
  return `${sentence(live.error.message)} The console connects again by itself.${old}`;
}

// `live` calls `showConnection` for each change of its state; only the age of the data needs a timer.
setInterval(() => {
  if (!document.hidden) showConnection();
}, 1000);

byId("stale-retry").addEventListener("click", () => events.dispatchEvent(new Event("token")));
byId("identity").addEventListener("click", () => askToken());
events.addEventListener("unauthenticated", () => askToken(token.get() === null ? "" : "The server does not accept this token."));

byId("search").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = byId("search-namespace").value;
  const text = byId("search-key").value;
  // The server turns the text into a key, because a path of a tree has another form.
  location.hash = text === "" ? fragment("namespace", { namespace: name }) : fragment("key", { namespace: name, key: text });
  byId("search-key").value = "";
  byId("search-key").blur();
});

document.addEventListener("keydown", (event) => {
  const typing = event.target.closest("input, textarea, select, dialog");
  if (event.key !== "/" || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  byId("search-key").focus();
});

const THEMES = ["auto", "light", "dark"];

function showTheme() {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  setAttribute(byId("theme"), "data-theme-now", theme);
  byId("theme").replaceChildren(h("span", { class: "theme-icon", "aria-hidden": "true" }));
  setAttribute(byId("theme"), "aria-label", `Theme: ${theme}. Change to ${next}.`);
  byId("theme").title = `Theme: ${theme}`;
}

byId("theme").addEventListener("click", () => {
  const theme = document.documentElement.dataset.theme ?? "auto";
  const next = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("waymaker-theme", next);
  } catch {
    // The choice lasts until the page is closed.
  }
  showTheme();
});

byId("skip").addEventListener("click", (event) => {
  event.preventDefault();
  byId("main").focus();
});

addEventListener("hashchange", route);
showTheme();
route();
live.start();
// The names are only suggestions in the search; the lists report errors.
loadNamespaces().catch(() => {});
