// One key: its holders, its queue, and the actions on them.

import { h, setText, showRaw, showTitle, raw, escaped, Table } from "./dom.js";
import { get, poll } from "./api.js";
import { actionButton, allow, forceRelease, freeze, resize, thaw } from "./dialogs.js";
import { modeColumn, problemLine, waiterColumns } from "./namespaces.js";
import { count, counted, duration, fragment, hexOf, keyFragment, nounOf } from "./format.js";

const REFRESH_MS = 1500;
/** Keys with more characters are shown in a smaller font. */
const LONG = 80;
/** Maximum number of dots for waiters, and of dots for holders. */
const MOST_DOTS = 24;

export function key({ parameters, signal }) {
  const namespace = parameters.get("namespace") ?? "default";
  // A key is asked for by its text until the server has given its bytes.
  let keyHex = parameters.get("key_hex");
  const firstText = parameters.get("key") ?? textOf(keyHex ?? "");
  const leases = new Leases();
  let shown = null;
  let frozenPrefix = null;

  const title = h("h1", { tabindex: "-1", class: "key", "data-test": "key-title" }, raw(firstText, "(empty key)"));
  title.classList.toggle("long", firstText.length > LONG);
  const facts = h("p", { class: "explanation", "data-test": "key-facts" });
  const status = h("p", { class: "verdict", "data-test": "key-status" }, "Loading…");
  const lane = new Lane();
  const problem = problemLine();
  const copied = h("span", { class: "explanation", role: "status" });
  const copy = h(
    "button",
    { type: "button", class: "plain", "data-test": "copy-key", click: () => copyKey(shown, copied) },
    "Copy key",
  );
  const freezeButton = actionButton("Freeze a prefix…", "freeze", false, "freeze", () =>
    freeze({ namespace, kind: shown.kind, prefix: shown.key, prefixHex: shown.key_hex, done: refreshNow }),
  );
  const thawButton = actionButton(
    "Thaw…",
    "thaw",
    false,
    "freeze",
    () => thaw({ namespace, ...frozenPrefix, done: refreshNow }),
    { hidden: true },
  );
  const resizeButton = actionButton(
    "Resize…",
    "resize",
    false,
    "resize",
    () => resize({ namespace, key: shown.key, keyHex: shown.key_hex, pool: shown.pool, done: refreshNow }),
    { hidden: true },
  );
  const frozenText = h("p");
  const frozen = h("div", { class: "notice inline", "data-test": "frozen-notice", hidden: true }, frozenText, thawButton);
  const actions = new Map();

  const release = (waiting) => ({
    name: "action",
    label: "Action",
    once: true,
    render: (cell, item) => {
      const click = () =>
        forceRelease({
          namespace,
          key: shown.key,
          claim: current(item, waiting),
          waiting,
          frozen: shown.frozen,
          noun: nounOf(shown.kind),
          done: refreshNow,
        });
      const button = actionButton(
        waiting ? "Remove…" : "Force release…",
        waiting ? "remove-waiter" : "force-release",
        false,
        "force_release",
        click,
      );
      actions.set(button, item.id);
      allowRelease(button, item.id);
      cell.append(button);
    },
  });
  const current = (item, waiting) => (waiting ? shown.waiters : shown.holders).find((other) => other.id === item.id) ?? item;
  function allowRelease(button, id) {
    const reason = id
      ? "Your identity lacks the right force_release here."
      : "Your identity may not see the id, which this action needs.";
    allow(button, Boolean(id) && shown.may.force_release, reason);
  }
  const owner = (label) => ({
    name: "owner",
    label,
    once: true,
    render: (cell, item) => cell.append(raw(item.owner, "(no name)")),
  });
  const id = {
    name: "id",
    label: "Id",
    once: true,
    render: (cell, item) => cell.append(h("code", { class: "id" }, item.id || "hidden")),
  };
  const rowId = (item, index) => item.id || String(index);
  const attributes = (item) => ({ "data-id": item.id, "data-owner": item.owner });

  const holders = new Table(
    [
      owner("Holder"),
      modeColumn(),
      { name: "held", label: "Held for", numeric: true, render: (cell, item) => setText(cell, duration(item.held_ms)) },
      { name: "lease", label: "Lease left", render: (cell, item) => leases.render(cell, item) },
      { name: "fence", label: "Fence", numeric: true, render: (cell, item) => setText(cell, item.fence) },
      id,
      release(false),
    ],
    { test: "holders", caption: "Holders", class: "cards", id: rowId, attributes, empty: "Nobody holds this key." },
  );
  const waiters = new Table(
    [
      { name: "position", label: "Position", render: (cell, item) => setText(cell, String(item.position)) },
      owner("Waiter"),
      ...waiterColumns(),
      { name: "priority", label: "Priority", numeric: true, render: (cell, item) => setText(cell, String(item.priority)) },
      id,
      release(true),
    ],
    {
      test: "waiters",
      caption: "Waiters in the order in which they are served",
      class: "cards",
      id: rowId,
      attributes,
      empty: "Nobody waits for this key.",
    },
  );
  const holdersTitle = h("h2", {}, "Holders");
  const waitersTitle = h("h2", {}, "Waiters");

  const refreshNow = poll(
    async () => {
      const answer = await get("lock", { namespace, key_hex: keyHex, key: keyHex === null ? firstText : null }, signal);
      frozenPrefix = answer.frozen ? await prefixOf(namespace, answer, signal) : null;
      show(answer);
    },
    REFRESH_MS,
    signal,
    problem.show,
  );

  function show(answer) {
    shown = answer;
    if (keyHex === null && answer.key_hex !== "") {
      // The address names the bytes, so that it means the same key for everybody.
      keyHex = answer.key_hex;
      history.replaceState(null, "", keyFragment(namespace, keyHex));
    }
    showTitle(escaped(answer.key) || "Key");
    showRaw(title.firstChild, answer.key, "(empty key)");
    title.classList.toggle("long", answer.key.length > LONG);
    const poolText = answer.pool ? ` · ${count(answer.pool.in_use)} of ${count(answer.pool.capacity)} permits in use` : "";
    const bytesText = isText(answer)
      ? ""
      : ` · not UTF-8, bytes ${answer.key_hex.slice(0, 64)}${answer.key_hex.length > 64 ? "…" : ""}`;
    setText(facts, `Kind ${answer.kind} · newest fence ${answer.fence}${poolText}${bytesText}`);
    setText(status, statusOf(answer));
    lane.update(answer);
    frozen.hidden = !answer.frozen;
    const prefixText =
      frozenPrefix === null
        ? ["This key is frozen."]
        : frozenPrefix.prefixHex === ""
          ? ["The whole namespace is frozen."]
          : ["The prefix ", raw(frozenPrefix.prefix), " is frozen."];
    if (frozenText.dataset.prefix !== String(frozenPrefix?.prefixHex)) {
      frozenText.dataset.prefix = String(frozenPrefix?.prefixHex);
      frozenText.replaceChildren(...prefixText, " The key gets no new grants; holders keep their locks.");
    }
    thawButton.hidden = frozenPrefix === null;
    allow(thawButton, answer.may.freeze, "Your identity lacks the right freeze here.");
    const textual = isText(answer);
    allow(
      freezeButton,
      answer.may.freeze && textual,
      textual ? "Your identity lacks the right freeze here." : "The key is not UTF-8, so the console cannot name its prefix.",
    );
    resizeButton.hidden = answer.pool === null;
    allow(resizeButton, answer.may.resize, "Your identity lacks the right resize here.");

    setText(holdersTitle, titleOf("Holders", answer.holder_count, answer.holders.length));
    setText(waitersTitle, titleOf("Waiters", answer.waiter_count, answer.waiters.length));
    setText(holders.empty, answer.holder_count > 0 ? "Your identity may not see the holders." : "Nobody holds this key.");
    setText(waiters.empty, answer.waiter_count > 0 ? "Your identity may not see the waiters." : "Nobody waits for this key.");
    leases.observe(answer.holders);
    holders.update(answer.holders.map((holder) => ({ ...holder, kind: answer.kind })));
    waiters.update(answer.waiters.map((waiter, index) => ({ ...waiter, kind: answer.kind, position: index + 1 })));
    for (const [button, claim] of actions) {
      if (button.isConnected) allowRelease(button, claim);
      else actions.delete(button);
    }
  }

  const element = h(
    "div",
    { class: "view" },
    h(
      "nav",
      { class: "crumbs", "aria-label": "Path" },
      h("a", { href: "#/namespaces" }, "Namespaces"),
      h("a", { href: fragment("namespace", { namespace }) }, raw(namespace)),
    ),
    h(
      "div",
      { class: "title" },
      h("div", { class: "title-text" }, title, facts),
      h("div", { class: "buttons" }, copied, copy, resizeButton, freezeButton),
    ),
    problem.element,
    frozen,
    h("section", { class: "summary", "aria-label": "Summary" }, status, lane.element),
    h("section", { class: "panel" }, holdersTitle, holders.element),
    h("section", { class: "panel" }, waitersTitle, waiters.element),
  );
  return { title: escaped(firstText) || "Key", element };
}

/** The text of a key until the server has answered. The bytes of a path in a tree begin with a length and have another form. */
function textOf(keyHex) {
  const bytes = Uint8Array.from(keyHex.match(/../g) ?? [], (pair) => parseInt(pair, 16));
  const text = new TextDecoder().decode(bytes);
  return /^[\0-\x1f]/.test(text) ? "…" : text;
}

function titleOf(name, total, shown) {
  return total === 0 ? name : total > shown ? `${name}: ${count(total)}, the first ${count(shown)}` : `${name}: ${count(total)}`;
}

/** Says in one sentence who holds the key and who waits. */
function statusOf(answer) {
  const [holder] = answer.holders;
  const longest = answer.waiters.reduce((longestYet, waiter) => Math.max(longestYet, waiter.wait_ms), 0);
  const several =
    answer.waiter_count > 1 ? `; the longest has waited ${duration(longest)}` : `, which has waited ${duration(longest)}`;
  const queue = answer.waiter_count === 0 ? "Nobody waits." : `${counted(answer.waiter_count, "waiter")}${several}.`;
  if (answer.pool) return `${count(answer.pool.in_use)} of ${count(answer.pool.capacity)} permits are in use. ${queue}`;
  if (answer.holder_count === 0) return `The key is free. ${queue}`;
  if (!holder) return `${counted(answer.holder_count, "holder")}. ${queue}`;
  const name = holder.owner === "" ? "a client without a name" : escaped(shortened(holder.owner));
  if (answer.holder_count === 1) return `Held by ${name} for ${duration(holder.held_ms)}. ${queue}`;
  return `Held by ${counted(answer.holder_count, "holder")}, the first is ${name}. ${queue}`;
}

function shortened(text) {
  const characters = [...text];
  return characters.length > 48 ? `${characters.slice(0, 47).join("")}…` : text;
}

/** The longest frozen prefix of this key; null if the list does not show it. */
async function prefixOf(namespace, answer, signal) {
  try {
    const { prefixes } = await get("frozen", { namespace }, signal);
    const matching = prefixes.filter(({ prefix_hex: hex }) => answer.key_hex.startsWith(hex));
    matching.sort((left, right) => right.prefix_hex.length - left.prefix_hex.length);
    return matching.length === 0 ? null : { prefix: matching[0].prefix, prefixHex: matching[0].prefix_hex };
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null;
  }
}

/** Whether the text names the key exactly: it is a path of a tree, or the key is UTF-8. */
function isText(answer) {
  return answer.kind === "tree" || hexOf(answer.key) === answer.key_hex;
}

async function copyKey(shown, note) {
  if (!shown) return;
  const asText = isText(shown);
  try {
    await navigator.clipboard.writeText(asText ? shown.key : shown.key_hex);
    setText(note, asText ? "Copied." : "Copied as hexadecimal digits.");
  } catch {
    setText(note, "The browser does not allow the page to copy.");
  }
}

/** The leases of the holders, and the renewals that happened while the page watched. */
class Leases {
  #seen = new Map();
  #start = performance.now();

  observe(holders) {
    const now = performance.now();
    const next = new Map();
    for (const holder of holders) {
      if (holder.remaining_ms === null || !holder.id) continue;
      const before = this.#seen.get(holder.id);
      const expected = before ? before.remaining - (now - before.at) : holder.remaining_ms;
      next.set(holder.id, {
        remaining: holder.remaining_ms,
        at: now,
        longest: Math.max(before?.longest ?? 0, holder.remaining_ms),
        // The requests take different times, so a small rise is no renewal.
        renewedAt: before && holder.remaining_ms > expected + 400 ? now : (before?.renewedAt ?? null),
        since: before?.since ?? now,
      });
    }
    this.#seen = next;
  }

  render(cell, holder) {
    if (!cell.firstChild) {
      const fill = h("span", { class: "meter-fill" });
      cell.append(
        h("span", { class: "lease-text" }),
        h("span", { class: "meter", "aria-hidden": "true" }, fill),
        h("span", { class: "renewal" }),
      );
    }
    const [text, meter, renewal] = cell.children;
    const lease = this.#seen.get(holder.id);
    meter.hidden = renewal.hidden = !lease;
    if (!lease) {
      setText(text, holder.remaining_ms === null ? "no lease" : duration(holder.remaining_ms));
      return;
    }
    setText(text, duration(lease.remaining));
    meter.firstChild.style.width = `${Math.min(100, (100 * lease.remaining) / Math.max(1, lease.longest))}%`;
    const now = performance.now();
    if (lease.renewedAt !== null)
      setText(renewal, now - lease.renewedAt < 2000 ? "renewed just now" : `renewed ${seconds(now - lease.renewedAt)} ago`);
    else
      setText(renewal, now - lease.since > 3000 ? `no renewal seen for ${seconds(now - lease.since)}` : "watching for renewals");
  }
}

/** A duration without tenths of a second, for times that the page itself measured. */
function seconds(ms) {
  return ms < 10000 ? `${Math.round(ms / 1000)}\u00a0s` : duration(ms);
}

/** A drawing of the key: waiters left of a gate, holders right of it. The tables have the same contents as text. */
class Lane {
  constructor() {
    this.queue = h("span", { class: "dots queue" });
    this.granted = h("span", { class: "dots granted" });
    this.element = h(
      "div",
      { class: "lane-drawing", "aria-hidden": "true" },
      this.queue,
      h("span", { class: "gate" }),
      this.granted,
    );
  }

  update(answer) {
    dots(this.queue, answer.waiter_count);
    dots(this.granted, answer.holder_count);
    this.element.classList.toggle("frozen", answer.frozen);
  }
}

function dots(element, number) {
  const wanted = Math.min(number, MOST_DOTS);
  while (element.children.length > wanted) element.lastChild.remove();
  while (element.children.length < wanted) element.append(h("span"));
  element.classList.toggle("cut", number > MOST_DOTS);
}
