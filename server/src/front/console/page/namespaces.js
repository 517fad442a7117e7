// The namespaces of the server, and the waiters of all namespaces.

import { h, namespaceLink, raw, setText, Table } from "./dom.js";
import { get, poll } from "./api.js";
import { count, counted, duration, fragment, keyFragment, sentence } from "./format.js";

const MOST_PAGES = 16;

/**
 * Reads the namespaces, at most 4,096, and offers their names in the search of the header. Reads no further page after one with a
 * namespace that `wanted` accepts. Returns `{list, complete}`.
 */
export async function loadNamespaces(signal, wanted = () => false) {
  const list = [];
  let cursor = null;
  for (let page = 0; page < MOST_PAGES; page += 1) {
    const answer = await get("namespaces", { cursor }, signal);
    list.push(...answer.namespaces);
    cursor = answer.next;
    if (cursor === null || answer.namespaces.some(wanted)) break;
  }
  const named = list.filter((namespace) => namespace.is_text);
  const names = named.slice(0, 256).map((namespace) => namespace.name);
  const options = document.getElementById("namespace-names");
  if (options.dataset.names !== names.join("\n")) {
    options.dataset.names = names.join("\n");
    options.replaceChildren(...names.map((name) => h("option", { value: name })));
  }
  return { list, complete: cursor === null };
}

/** A line for an error of a list that is refreshed. The data of the last success stays visible. */
export function problemLine() {
  const element = h("p", { class: "error", role: "status", "data-test": "problem", hidden: true });
  const show = (error) => {
    element.hidden = error === null;
    setText(element, error === null ? "" : error.status === 401 ? "The server asks for a token." : sentence(error.message));
  };
  return { element, show };
}

/** Maximum number of rows in the list of namespaces. The operator finds the others by the filter. */
const MOST_ROWS = 200;

export function namespaces({ signal }) {
  const number = (name, label) => ({
    name,
    label,
    numeric: true,
    value: (item) => item[name],
    render: (cell, item) => setText(cell, count(item[name])),
  });
  const table = new Table(
    [
      {
        name: "name",
        label: "Name",
        once: true,
        value: (item) => item.name,
        render: (cell, item) =>
          cell.append(
            namespaceLink(item.is_text, fragment("namespace", { namespace: item.name }), "key", raw(item.name)),
          ),
      },
      { name: "kind", label: "Kind", value: (item) => item.kind, render: (cell, item) => setText(cell, item.kind) },
      number("held", "Held"),
      number("waiting", "Waiting"),
      number("timeouts", "Timeouts"),
      number("expired", "Expired"),
      number("revoked", "Revoked"),
    ],
    {
      test: "namespaces",
      caption: "Namespaces",
      class: "cards",
      href: true,
      sort: { name: "name", descending: false },
      id: (item) => `${item.name}\n${item.kind}`,
      attributes: (item) => ({ "data-namespace": item.name, "data-kind": item.kind }),
      empty: "There is no namespace. The first client of a namespace creates it.",
    },
  );
  const filter = h("input", {
    type: "search",
    "aria-label": "Filter by name",
    placeholder: "Filter by name",
    "data-test": "namespace-filter",
    autocomplete: "off",
    spellcheck: "false",
    input: show,
  });
  const summary = h("p", { class: "explanation", role: "status" });
  const problem = problemLine();
  let found = null;
  function show() {
    if (!found) return;
    const matching = found.list.filter((item) => item.name.toLowerCase().includes(filter.value.toLowerCase()));
    setText(
      table.empty,
      found.list.length === 0
        ? "There is no namespace. The first client of a namespace creates it."
        : "No namespace matches the filter.",
    );
    table.update(matching.slice(0, MOST_ROWS));
    const rest = matching.length > MOST_ROWS ? ` The table shows ${MOST_ROWS}; use the filter to find others.` : "";
    setText(summary, `${counted(matching.length, "namespace")}${found.complete ? "" : " or more"}.${rest}`);
  }
  poll(
    async () => {
      found = await loadNamespaces(signal);
      show();
    },
    3000,
    signal,
    problem.show,
  );
  const element = h(
    "div",
    { class: "view" },
    h("h1", { tabindex: "-1" }, "Namespaces"),
    h(
      "p",
      { class: "explanation" },
      "A namespace separates users of one server. Timeouts, expired leases and revoked locks count since the namespace exists.",
    ),
    h("div", { class: "toolbar" }, filter, summary),
    problem.element,
    table.element,
  );
  return { title: "Namespaces", element };
}

/** Maximum number of namespaces whose waiters are read for the list. */
const MOST_ASKED = 6;

/** The cells of a waiter that the list of all waiters and the list of one namespace share. */
export function waiterColumns() {
  return [
    { name: "wait", label: "Waits for", numeric: true, render: (cell, item) => setText(cell, duration(item.wait_ms)) },
    {
      name: "remaining",
      label: "Gives up in",
      numeric: true,
      render: (cell, item) => setText(cell, item.remaining_ms === null ? "never" : duration(item.remaining_ms)),
    },
    modeColumn(),
  ];
}

/** The mode of a claim in keys and trees, or its permits in a pool. */
export function modeColumn() {
  const text = (item) => {
    if (item.permits) return counted(item.permits, "permit");
    if (!["flat", "tree"].includes(item.kind)) return "–";
    return item.shared ? "read" : "write";
  };
  return { name: "mode", label: "Mode", render: (cell, item) => setText(cell, text(item)) };
}

export function keyColumn(namespaceOf) {
  return {
    name: "key",
    label: "Key",
    once: true,
    render: (cell, item) =>
      cell.append(h("a", { href: keyFragment(namespaceOf(item), item.key_hex), class: "key" }, raw(item.key, "(empty key)"))),
  };
}

export function ownerColumn(label) {
  return { name: "owner", label, once: true, render: (cell, item) => cell.append(raw(item.owner, "(no name)")) };
}

export function waiters({ signal }) {
  const table = new Table(
    [
      keyColumn((item) => item.namespace),
      {
        name: "namespace",
        label: "Namespace",
        once: true,
        render: (cell, item) =>
          cell.append(
            h(
              "a",
              { href: fragment("namespace", { namespace: item.namespace, tab: "waiting" }), class: "quiet" },
              raw(item.namespace),
            ),
          ),
      },
      ownerColumn("Waiter"),
      ...waiterColumns(),
    ],
    {
      test: "all-waiters",
      caption: "Waiters of all namespaces, longest first",
      class: "cards",
      href: true,
      steady: true,
      empty: "No acquire waits.",
      id: (item, index) => `${item.namespace}\n${item.key_hex}\n${item.id || index}`,
      attributes: (item) => ({
        "data-key": item.key,
        "data-key-hex": item.key_hex,
        "data-namespace": item.namespace,
        "data-id": item.id,
      }),
    },
  );
  const summary = h("p", { class: "explanation", "data-test": "waiters-summary" }, "Loading…");
  const problem = problemLine();
  poll(
    async () => {
      const { list } = await loadNamespaces(signal);
      const waitingThere = list.filter((item) => item.waiting > 0 && item.is_text);
      const candidates = waitingThere.filter((item) => item.may.list).sort((left, right) => right.waiting - left.waiting);
      const asked = candidates.slice(0, MOST_ASKED);
      const answers = await Promise.all(
        asked.map(async ({ name }) => {
          const answer = await get("waiting", { namespace: name }, signal);
          return {
            complete: answer.complete,
            waiters: answer.waiters.map((waiter) => ({ ...waiter, namespace: name, kind: answer.kind })),
          };
        }),
      );
      const all = answers
        .flatMap((answer) => answer.waiters)
        .sort((left, right) => right.wait_ms - left.wait_ms)
        .slice(0, 100);
      table.update(all);
      const total = waitingThere.reduce((sum, item) => sum + item.waiting, 0);
      const left = waitingThere.length - asked.length;
      const notes = [
        `${counted(total, "waiter")} in ${counted(waitingThere.length, "namespace")}${total > all.length ? `; the first ${count(all.length)} are shown` : ""}.`,
      ];
      if (left > 0)
        notes.push(
          `${counted(left, "namespace")} with waiters not read: open ${left === 1 ? "it" : "them"} to see ${left === 1 ? "its" : "their"} waiters.`,
        );
      if (answers.some((answer) => !answer.complete))
        notes.push("The server did not compare all waiters, so others may wait longer.");
      setText(summary, notes.join(" "));
    },
    3000,
    signal,
    (error) => {
      if (error) setText(summary, "");
      problem.show(error);
    },
  );
  const element = h(
    "div",
    { class: "view" },
    h("h1", { tabindex: "-1" }, "Longest waiters"),
    h(
      "p",
      { class: "explanation" },
      "The acquires that have waited longest, in all namespaces. Open a key to see why it is not free.",
    ),
    summary,
    problem.element,
    table.element,
  );
  return { title: "Waiters", element };
}
