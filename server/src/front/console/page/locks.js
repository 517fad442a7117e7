// One namespace: its held locks, its waiters and its frozen prefixes.

import { h, setText, raw, escaped, Table } from "./dom.js";
import { get, poll } from "./api.js";
import { actionButton, allow, freeze, thaw } from "./dialogs.js";
import { keyColumn, loadNamespaces, modeColumn, ownerColumn, problemLine, waiterColumns } from "./namespaces.js";
import { count, counted, duration, fragment } from "./format.js";

const PAGE_ROWS = 100;
/** Maximum number of pages without a row that are read before the operator must choose to search on. */
const MOST_EMPTY_PAGES = 40;

export function namespace({ parameters, signal }) {
  const name = parameters.get("namespace") ?? "default";
  const tab = ["waiting", "frozen"].includes(parameters.get("tab")) ? parameters.get("tab") : "held";
  const link = (other, label) =>
    h(
      "a",
      {
        href: fragment("namespace", { namespace: name, tab: other === "held" ? null : other }),
        "aria-current": other === tab ? "page" : null,
        "data-test": `tab-${other}`,
      },
      label,
    );
  const facts = h("p", { class: "explanation", "data-test": "namespace-facts" });
  const info = { namespace: name, kind: "flat" };
  const prefixNow = () => element.querySelector("#prefix")?.value ?? "";
  const freezeButton = actionButton("Freeze a prefix…", "freeze", false, "freeze", () =>
    freeze({ ...info, prefix: prefixNow(), done: () => body.refresh() }),
  );
  const problem = problemLine();
  const body = { held: heldTab, waiting: waitingTab, frozen: frozenTab }[tab](name, parameters, signal, info, problem);
  const element = h(
    "div",
    { class: "view" },
    h("nav", { class: "crumbs", "aria-label": "Path" }, h("a", { href: "#/namespaces" }, "Namespaces")),
    h(
      "div",
      { class: "title" },
      h(
        "div",
        { class: "title-text" },
        h("h1", { tabindex: "-1", class: "key", "data-test": "namespace-title" }, raw(name)),
        facts,
      ),
      freezeButton,
    ),
    h(
      "nav",
      { class: "tabs", "aria-label": "Contents of the namespace" },
      link("held", "Held"),
      link("waiting", "Waiting"),
      link("frozen", "Frozen prefixes"),
    ),
    problem.element,
    body.element,
  );

  poll(
    async () => {
      const { list } = await loadNamespaces(signal, (item) => item.name === name);
      const found = list.find((item) => item.name === name);
      if (!found) {
        setText(facts, "The server has no namespace with this name, or your identity has no right in it.");
        allow(freezeButton, false, "The server has no namespace with this name.");
        return;
      }
      info.kind = found.kind;
      info.may = found.may;
      setText(
        facts,
        `Kind ${found.kind} · ${count(found.held)} held · ${count(found.waiting)} waiting · ${counted(found.timeouts, "timeout")} · ${count(found.expired)} expired · ${count(found.revoked)} revoked`,
      );
      allow(freezeButton, found.may.freeze, "Your identity lacks the right freeze here.");
      body.allow?.(found.may);
    },
    5000,
    signal,
    () => {},
  );
  return { title: escaped(name), element };
}

/** Shows an error instead of the text about the list. */
function failure(problem, status) {
  return (error) => {
    if (error) setText(status, "");
    problem.show(error);
  };
}

function prefixForm(prefix, submit) {
  const input = h("input", {
    id: "prefix",
    type: "search",
    value: prefix,
    placeholder: "Keys that begin with…",
    "aria-label": "Prefix of the keys",
    "data-test": "prefix",
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
  });
  return h(
    "form",
    {
      class: "prefix",
      role: "search",
      "aria-label": "Keys by prefix",
      submit: (event) => {
        event.preventDefault();
        submit(input.value);
      },
    },
    input,
    h("button", { type: "submit", "data-test": "prefix-find" }, "Find"),
  );
}

/** The held locks, page by page. The page that is shown is refreshed in place. */
function heldTab(name, parameters, signal, info, problem) {
  const prefix = parameters.get("prefix") ?? "";
  const table = new Table(
    [
      keyColumn(() => name),
      ownerColumn("Holder"),
      modeColumn(),
      { name: "held", label: "Held for", numeric: true, render: (cell, item) => setText(cell, duration(item.held_ms)) },
      { name: "lease", label: "Lease left", numeric: true, render: (cell, item) => setText(cell, leaseText(item.remaining_ms)) },
      { name: "fence", label: "Fence", numeric: true, render: (cell, item) => setText(cell, item.fence) },
    ],
    {
      test: "locks",
      caption: "Held locks",
      class: "cards",
      href: true,
      empty: "",
      id: (item, index) => `${item.key_hex}\n${item.id || index}`,
      attributes: (item) => ({ "data-key": item.key, "data-key-hex": item.key_hex, "data-id": item.id }),
    },
  );
  const status = h("p", { class: "explanation", role: "status", "data-test": "locks-status" }, "Loading…");
  const first = h("button", { type: "button", "data-test": "first", click: () => go(["first"]) }, "First page");
  const previous = h("button", { type: "button", "data-test": "previous", click: () => go("previous") }, "Previous");
  const following = h("button", { type: "button", "data-test": "next", click: () => go("next") }, "Next");
  const more = h("button", { type: "button", "data-test": "search-on", hidden: true, click: () => go("next") }, "Search on");
  const pager = h("div", { class: "pager" }, first, previous, following, more);
  // The cursors of the pages up to the present one. The first page has none.
  let cursors = [null];
  let next = null;
  const listFragment = (text) => fragment("namespace", { namespace: name, prefix: text });

  function go(where) {
    if (where === "next") cursors.push(next);
    else if (where === "previous") cursors.pop();
    else cursors = [null];
    // A page that appears after the operator left it must not be shown.
    generation += 1;
    following.disabled = true;
    setText(status, "Loading…");
    refresh();
    scrollTo({ top: 0 });
  }

  let generation = 0;
  async function load() {
    const mine = generation;
    const rows = [];
    let cursor = cursors.at(-1);
    let pages = 0;
    do {
      const answer = await get("locks", { namespace: name, prefix: prefix || null, cursor, count: PAGE_ROWS }, signal);
      if (mine !== generation) return;
      rows.push(...answer.locks.map((lock) => ({ ...lock, kind: answer.kind })));
      cursor = answer.next;
      pages += 1;
      if (pages > 1 && rows.length === 0) setText(status, `Searching: ${counted(pages, "page")} read, none has a matching key.`);
    } while (cursor !== null && rows.length === 0 && pages < MOST_EMPTY_PAGES);
    next = cursor;
    const unfinished = rows.length === 0 && next !== null;
    setText(
      table.empty,
      unfinished ? "No matching key so far." : prefix ? "No key with this prefix is held." : "Nothing is held here.",
    );
    table.update(rows);
    const page = `Page ${count(cursors.length)}, ${counted(rows.length, "row")}.`;
    setText(
      status,
      unfinished
        ? `${counted(pages, "page")} read. There are more.`
        : next === null && cursors.length === 1
          ? `${counted(rows.length, "row")}.`
          : page,
    );
    pager.hidden = next === null && cursors.length === 1;
    first.disabled = previous.disabled = cursors.length === 1;
    following.disabled = next === null;
    following.hidden = unfinished;
    more.hidden = !unfinished;
  }

  pager.hidden = true;
  const refresh = poll(load, 4000, signal, failure(problem, status));
  const element = h(
    "div",
    {},
    h(
      "div",
      { class: "toolbar" },
      prefixForm(prefix, (text) => {
        location.hash = listFragment(text);
      }),
      status,
    ),
    table.element,
    pager,
  );
  return { element, refresh };
}

function leaseText(remaining) {
  return remaining === null || remaining === undefined ? "no lease" : duration(remaining);
}

function waitingTab(name, parameters, signal, info, problem) {
  const prefix = parameters.get("prefix") ?? "";
  const table = new Table(
    [
      keyColumn(() => name),
      ownerColumn("Waiter"),
      ...waiterColumns(),
      { name: "priority", label: "Priority", numeric: true, render: (cell, item) => setText(cell, String(item.priority)) },
    ],
    {
      test: "waiters",
      caption: "Waiters, longest first",
      class: "cards",
      href: true,
      steady: true,
      empty: "No acquire waits here.",
      id: (item, index) => `${item.key_hex}\n${item.id || index}`,
      attributes: (item) => ({ "data-key": item.key, "data-key-hex": item.key_hex, "data-id": item.id }),
    },
  );
  const status = h("p", { class: "explanation", "data-test": "waiters-status" }, "Loading…");
  const refresh = poll(
    async () => {
      const answer = await get("waiting", { namespace: name, prefix: prefix || null }, signal);
      table.update(answer.waiters.map((waiter) => ({ ...waiter, kind: answer.kind })));
      const some = answer.complete
        ? ""
        : ` The server compared ${counted(answer.seen, "waiter")} and then stopped; others may wait longer.`;
      setText(
        status,
        answer.seen === 0 ? "" : `The longest waiters first, ${count(answer.waiters.length)} of ${count(answer.seen)}.${some}`,
      );
    },
    2000,
    signal,
    failure(problem, status),
  );
  const element = h(
    "div",
    {},
    h(
      "div",
      { class: "toolbar" },
      prefixForm(prefix, (text) => {
        location.hash = fragment("namespace", { namespace: name, tab: "waiting", prefix: text });
      }),
      status,
    ),
    table.element,
  );
  return { element, refresh };
}

function frozenTab(name, parameters, signal, info, problem) {
  const buttons = new Set();
  const allowThaw = (button) => allow(button, info.may?.freeze, "Your identity lacks the right freeze here.");
  const table = new Table(
    [
      {
        name: "prefix",
        label: "Prefix",
        once: true,
        render: (cell, item) => cell.append(h("span", { class: "key" }, raw(item.prefix, "(whole namespace)"))),
      },
      {
        name: "action",
        label: "Action",
        once: true,
        render: (cell, item) => {
          const button = actionButton("Thaw…", "thaw", false, "freeze", () =>
            thaw({ namespace: name, prefix: item.prefix, prefixHex: item.prefix_hex, done: () => refresh() }),
          );
          buttons.add(button);
          allowThaw(button);
          cell.append(button);
        },
      },
    ],
    {
      test: "frozen",
      caption: "Frozen prefixes",
      class: "cards narrow",
      id: (item) => item.prefix_hex,
      attributes: (item) => ({ "data-prefix": item.prefix }),
      empty: "No prefix is frozen.",
    },
  );
  const refresh = poll(
    async () => {
      const answer = await get("frozen", { namespace: name }, signal);
      table.update(answer.prefixes);
    },
    3000,
    signal,
    problem.show,
  );
  const element = h(
    "div",
    {},
    h(
      "p",
      { class: "explanation" },
      "Keys that begin with a frozen prefix get no new grants. Their holders keep their locks, and their waiters stay in the queue.",
    ),
    table.element,
  );
  return { element, refresh, allow: () => buttons.forEach(allowThaw) };
}
