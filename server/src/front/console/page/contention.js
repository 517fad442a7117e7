// The keys with the most waits.

import { h, namespaceLink, raw, setText, Table } from "./dom.js";
import { count, duration, fragment, keyFragment, rate } from "./format.js";

/** The table of contended keys; at most `limit` rows. */
export function contentionTable(limit) {
  const table = new Table(
    [
      {
        name: "key",
        label: "Key",
        once: true,
        render: (cell, item) =>
          cell.append(
            namespaceLink(item.is_text, keyFragment(item.namespace, item.key_hex), "key", raw(item.key, "(empty key)")),
          ),
      },
      {
        name: "namespace",
        label: "Namespace",
        once: true,
        render: (cell, item) =>
          cell.append(
            namespaceLink(item.is_text, fragment("namespace", { namespace: item.namespace }), "quiet", raw(item.namespace)),
          ),
      },
      {
        name: "waits",
        label: "Waits per second",
        numeric: true,
        value: (item) => item.waits_per_s,
        render: (cell, item) => setText(cell, rate(item.waits_per_s)),
      },
      {
        name: "waiting",
        label: "Waiting now",
        numeric: true,
        value: (item) => item.waiting ?? -1,
        render: (cell, item) => setText(cell, item.waiting === null ? "–" : count(item.waiting)),
      },
      {
        name: "oldest",
        label: "Oldest wait",
        numeric: true,
        value: (item) => item.oldest_wait_ms ?? -1,
        render: (cell, item) => setText(cell, item.oldest_wait_ms ? duration(item.oldest_wait_ms) : "–"),
      },
    ],
    {
      test: "contention",
      caption: "Contended keys",
      class: "cards",
      steady: true,
      href: true,
      sort: { name: "waits", descending: true },
      id: (item) => `${item.namespace}\n${item.kind}\n${item.key_hex}`,
      attributes: (item) => ({ "data-key": item.key, "data-key-hex": item.key_hex, "data-namespace": item.namespace }),
      empty: "No key had waiters lately.",
    },
  );
  return { element: table.element, update: (items) => table.update(items.slice(0, limit)) };
}

export function contention() {
  const table = contentionTable(32);
  const element = h(
    "div",
    { class: "view" },
    h("h1", { tabindex: "-1" }, "Contended keys"),
    h(
      "p",
      { class: "explanation" },
      "The keys with the most waits per second, at most 32. Choose a column to sort by it. The order stays while the pointer is on the table.",
    ),
    table.element,
  );
  return { title: "Contention", element, live: (event) => table.update(event.contention) };
}
