// Dialogs: the actions of an operator, and the token.

import { h, raw, setText } from "./dom.js";
import { post, token } from "./api.js";
import { count, counted, sentence } from "./format.js";

const REASON_BYTES = 256;

/** Makes a dialog that is removed when it closes, and gives the focus back to the element that had it. */
function openDialog(test, title, contents) {
  const before = document.activeElement;
  const heading = h("h2", { id: `${test}-title` }, title);
  const dialog = h("dialog", { "aria-labelledby": heading.id, "data-test": test }, heading, contents);
  dialog.addEventListener("close", () => {
    dialog.remove();
    // The action may have removed the row that had the focus.
    (before?.isConnected ? before : document.querySelector("main h1"))?.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
  return dialog;
}

function factList(facts) {
  return h(
    "dl",
    { class: "facts" },
    facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value))),
  );
}

/**
 * Asks for a confirmation and a reason, sends an action and shows the result. `action`: `test`, `title`, `sentence`, `danger` (optional), `reversible`,
 * `facts` (pairs), `fields` (elements), `confirm` (label), `check()` (returns an error text or an empty one), `send(reason)` (returns the
 * result as contents of a paragraph), `done()` (called after a success).
 */
function confirmAction(action) {
  const error = h("p", { class: "error", role: "alert", "data-test": "dialog-error", hidden: true });
  const result = h("p", { class: "result", role: "status", "data-test": "dialog-result", hidden: true });
  const reason = h("input", {
    id: "dialog-reason",
    "data-test": "dialog-reason",
    type: "text",
    required: true,
    maxlength: REASON_BYTES,
    autocomplete: "off",
    "aria-describedby": "dialog-reason-note",
  });
  const cancel = h("button", { type: "button", "data-test": "dialog-cancel", autofocus: true }, "Cancel");
  const confirm = h(
    "button",
    { type: "button", class: action.danger && !action.reversible ? "danger" : "primary", "data-test": "dialog-confirm" },
    action.confirm,
  );
  const form = h(
    "form",
    { novalidate: true },
    h("p", { class: "sentence", "data-test": "dialog-sentence" }, action.sentence),
    action.danger ? h("p", { class: action.reversible ? "warning mild" : "warning" }, action.danger) : null,
    factList(action.facts),
    action.fields ?? [],
    h("label", { for: "dialog-reason" }, "Reason"),
    reason,
    h("p", { class: "explanation", id: "dialog-reason-note" }, "The server writes the reason to its audit log."),
  );
  const dialog = openDialog(action.test, action.title, [form, error, result, h("div", { class: "buttons" }, cancel, confirm)]);
  cancel.focus();

  const fail = (text) => {
    setText(error, text);
    error.hidden = text === "";
  };
  const submit = async () => {
    const text = reason.value.trim();
    const length = new TextEncoder().encode(text).length;
    const problem =
      action.check?.() ||
      (length === 0
        ? "Give a reason."
        : length > REASON_BYTES
          ? `The reason is ${length} bytes long; the maximum is ${REASON_BYTES}.`
          : "");
    fail(problem);
    if (problem) {
      if (problem.includes("reason")) reason.focus();
      return;
    }
    confirm.disabled = true;
    try {
      result.replaceChildren(...(await action.send(text)));
      result.hidden = false;
      form.hidden = true;
      confirm.remove();
      setText(cancel, "Close");
      cancel.focus();
      action.done();
    } catch (failure) {
      fail(sentence(failure.message));
      confirm.disabled = false;
    }
  };
  cancel.addEventListener("click", () => dialog.close());
  confirm.addEventListener("click", submit);
  // The Enter key in a field goes to the button instead of pressing it, so that no action happens by accident.
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    confirm.focus();
  });
  form.addEventListener("keydown", (event) => {
    if (event.key !== "Enter") return;
    event.preventDefault();
    confirm.focus();
  });
}

/** Opens the dialog that ends a hold or takes a waiter out of its queue. */
export function forceRelease({ namespace, key, claim, waiting, frozen, noun, done }) {
  const after = frozen ? "The key stays free while its prefix is frozen." : "The next waiter is granted at once.";
  confirmAction({
    test: "force-release-dialog",
    title: waiting ? "Remove this waiter?" : "Force the release?",
    sentence: waiting
      ? "The waiter leaves the queue, and its acquire fails. It may ask again."
      : `The holder is told and loses the ${noun}. ${after}`,
    danger: waiting
      ? null
      : "The holder's work may go on. Only the fence protects the resource: the storage must refuse an older fence.",
    facts: [
      ["Key", raw(key, "(empty key)")],
      [waiting ? "Waiter" : "Holder", raw(claim.owner, "(no name)")],
      ...(waiting ? [] : [["Fence", claim.fence]]),
      ["Id", h("span", { class: "raw" }, claim.id)],
    ],
    confirm: waiting ? "Remove waiter" : "Force release",
    send: async (reason) => {
      const answer = await post("force-release", { namespace, id: claim.id, reason });
      return answer.was_waiting
        ? ["The waiter ", raw(answer.owner, "(no name)"), " of ", raw(answer.key), " left the queue."]
        : ["The holder ", raw(answer.owner, "(no name)"), " lost ", raw(answer.key), ` with fence ${answer.fence}.`];
    },
    done,
  });
}

/** Opens the dialog that freezes a prefix. The operator can change the prefix; a tree can only be frozen as a whole. */
export function freeze({ namespace, kind, prefix, prefixHex, done }) {
  const tree = kind === "tree";
  const input = h("input", {
    id: "dialog-prefix",
    "data-test": "dialog-prefix",
    type: "text",
    value: tree ? "" : prefix,
    autocomplete: "off",
    autocapitalize: "off",
    spellcheck: "false",
    class: "raw",
    "aria-describedby": "dialog-prefix-note",
  });
  const note = h("p", { class: "explanation", id: "dialog-prefix-note", "data-test": "dialog-prefix-note" });
  const describe = () => {
    if (input.value === "") setText(note, "An empty prefix freezes the whole namespace.");
    else note.replaceChildren("Freezes every key that begins with ", raw(input.value), ".");
  };
  input.addEventListener("input", describe);
  describe();
  confirmAction({
    test: "freeze-dialog",
    title: tree ? "Freeze this namespace?" : "Freeze a prefix?",
    sentence: "The server makes no new grants for these keys until an operator thaws them.",
    danger:
      "Holders keep their locks and can renew them. Waiters stay in the queue and may time out. An acquire that does not wait fails.",
    reversible: true,
    facts: [["Namespace", raw(namespace)]],
    fields: tree
      ? [h("p", { class: "explanation" }, "A tree can only be frozen as a whole.")]
      : [h("label", { for: "dialog-prefix" }, "Prefix"), input, note],
    confirm: "Freeze",
    send: async (reason) => {
      const chosen = input.value;
      // The text of a key that is not UTF-8 does not name it.
      const named = prefixHex && chosen === prefix ? { prefix_hex: prefixHex } : { prefix: chosen };
      const answer = await post("freeze", { namespace, ...named, thaw: false, reason });
      const subject = chosen === "" ? ["The namespace ", raw(namespace)] : ["The prefix ", raw(chosen)];
      const total = ` The namespace has ${counted(answer.frozen_count, "frozen prefix", "frozen prefixes")}.`;
      return [...subject, (answer.changed ? " is frozen." : " was frozen already.") + total];
    },
    done,
  });
}

/** Opens the dialog that thaws one frozen prefix. */
export function thaw({ namespace, prefix, prefixHex, done }) {
  confirmAction({
    test: "thaw-dialog",
    title: prefix === "" ? "Thaw this namespace?" : "Thaw this prefix?",
    sentence: "The server grants these keys again. It grants the first waiters at once.",
    facts: [
      ["Namespace", raw(namespace)],
      ["Prefix", raw(prefix, "(whole namespace)")],
    ],
    confirm: "Thaw",
    send: async (reason) => {
      const answer = await post("freeze", { namespace, prefix_hex: prefixHex, thaw: true, reason });
      const subject = prefix === "" ? ["The namespace ", raw(namespace)] : ["The prefix ", raw(prefix)];
      return [...subject, answer.changed ? " is thawed." : " was not frozen."];
    },
    done,
  });
}

/** Opens the dialog that sets the capacity of a pool. */
export function resize({ namespace, key, keyHex, pool, done }) {
  const input = h("input", {
    id: "dialog-capacity",
    "data-test": "dialog-capacity",
    type: "number",
    min: "1",
    step: "1",
    value: String(pool.capacity),
    inputmode: "numeric",
    "aria-describedby": "dialog-capacity-note",
  });
  const note = h("p", { class: "explanation", id: "dialog-capacity-note" });
  const valid = () => /^[0-9]+$/.test(input.value) && Number.isSafeInteger(Number(input.value)) && Number(input.value) > 0;
  const describe = () => {
    const capacity = Number(input.value);
    if (!valid()) setText(note, "The capacity is a whole number, at least 1.");
    else if (capacity < pool.in_use)
      setText(
        note,
        `${count(pool.in_use)} permits are in use. No holder loses a permit; new grants wait until holders have returned enough of them.`,
      );
    else if (capacity > pool.capacity) setText(note, "The server grants waiters at once.");
    else setText(note, `${count(pool.in_use)} of ${count(pool.capacity)} permits are in use.`);
  };
  input.addEventListener("input", describe);
  describe();
  confirmAction({
    test: "resize-dialog",
    title: "Resize this pool?",
    sentence:
      "The pool keeps this capacity until an operator changes it. A waiter that needs more permits than the capacity fails.",
    facts: [
      ["Pool", raw(key)],
      ["Capacity now", count(pool.capacity)],
    ],
    fields: [h("label", { for: "dialog-capacity" }, "New capacity"), input, note],
    confirm: "Resize",
    check: () => (valid() ? "" : "The capacity is not a whole number of at least 1."),
    send: async (reason) => {
      const answer = await post("resize", { namespace, key_hex: keyHex, capacity: Number(input.value), reason });
      const used = answer.in_use === null ? "" : ` ${counted(answer.in_use, "permit is", "permits are")} in use.`;
      return [`The capacity is ${count(answer.capacity)}.${used}`];
    },
    done,
  });
}

let tokenDialog = null;

/** Asks for a token. `problem` is shown as an error. */
export function askToken(problem = "") {
  if (tokenDialog) return;
  const input = h("input", {
    id: "token",
    "data-test": "token",
    type: "password",
    autocomplete: "off",
    spellcheck: "false",
    autofocus: true,
  });
  const error = h("p", { class: "error", role: "alert", "data-test": "token-error", hidden: problem === "" }, problem);
  const forget = h(
    "button",
    { type: "button", class: "plain", "data-test": "token-forget", hidden: token.get() === null },
    "Forget the token",
  );
  const cancel = h("button", { type: "button", "data-test": "token-cancel" }, "Cancel");
  const form = h(
    "form",
    {},
    h(
      "p",
      { class: "sentence" },
      "The token proves your identity to the server. The browser keeps it for this tab only, until the tab is closed.",
    ),
    h("label", { for: "token" }, "Token"),
    input,
    error,
    h(
      "div",
      { class: "buttons" },
      forget,
      cancel,
      h("button", { type: "submit", class: "primary", "data-test": "token-use" }, "Use token"),
    ),
  );
  tokenDialog = openDialog("token-dialog", "Token", form);
  tokenDialog.addEventListener("close", () => {
    tokenDialog = null;
  });
  input.focus();
  const use = (value) => {
    tokenDialog.close();
    token.set(value);
  };
  forget.addEventListener("click", () => use(null));
  cancel.addEventListener("click", () => tokenDialog.close());
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const value = input.value.trim();
    // Other characters cannot be sent in a header.
    if (/^[\x21-\x7e]+$/.test(value)) {
      use(value);
      return;
    }
    setText(error, value === "" ? "Enter a token." : "The token has a character that no token has.");
    error.hidden = false;
  });
}

/** A button for an action; without the right it is disabled and says why. */
export function actionButton(label, test, allowed, right, click, attributes = {}) {
  const button = h(
    "button",
    {
      type: "button",
      "data-test": test,
      click: () => {
        if (button.getAttribute("aria-disabled") !== "true") click();
      },
      ...attributes,
    },
    label,
  );
  allow(button, allowed, `Your identity lacks the right ${right} here.`);
  return button;
}

/** Enables an action button, or disables it with this reason. It keeps the focus, so that the reason can be read. */
export function allow(button, allowed, reason) {
  if (allowed) {
    button.removeAttribute("aria-disabled");
    button.removeAttribute("title");
  } else {
    button.setAttribute("aria-disabled", "true");
    button.title = reason;
  }
}
