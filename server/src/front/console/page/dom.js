// Elements, text and tables. Keys and owners are bytes that clients choose, so all data becomes text nodes.

/**
 * Makes an element. Attributes whose value is null, undefined or false are left out; a function becomes an event listener.
 * Children are nodes or strings.
 */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  setAttributes(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Makes an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  setAttributes(element, attributes);
  element.append(...children);
  return element;
}

function setAttributes(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
}

/** Sets the text of an element and touches the document only if the text changed. */
export function setText(element, text) {
  if (element.firstChild?.nodeType === Node.TEXT_NODE && element.childNodes.length === 1) {
    if (element.firstChild.data !== text) element.firstChild.data = text;
  } else {
    element.textContent = text;
  }
}

/** Sets or removes an attribute, if that is a change. */
export function setAttribute(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
  } else if (element.getAttribute(name) !== String(value)) {
    element.setAttribute(name, value);
  }
}

/** Control characters, invisible and direction characters, unassigned and private characters, and all spaces except U+0020. */
const UNSAFE = /(?! )[\p{C}\p{Z}]/u;

/** The parts of a text: runs of visible characters, and escapes such as `\u{202e}`. */
function parts(text) {
  const found = [];
  let run = "";
  for (const character of text) {
    if (UNSAFE.test(character)) {
      if (run) found.push({ text: run, escaped: false });
      run = "";
      found.push({ text: `\\u{${character.codePointAt(0).toString(16)}}`, escaped: true });
    } else {
      run += character;
    }
  }
  if (run) found.push({ text: run, escaped: false });
  return found;
}

/** The text with escapes for characters that are invisible or change the direction. */
export function escaped(text) {
  return parts(text)
    .map((part) => part.text)
    .join("");
}

/** Shows bytes of a client inside an element, with escapes that look different from the same characters typed. */
export function showRaw(element, text, placeholder = "") {
  if (element.dataset.raw === text) return element;
  element.dataset.raw = text;
  element.classList.add("raw");
  element.replaceChildren(
    ...parts(text).map((part) => (part.escaped ? h("span", { class: "escape" }, part.text) : document.createTextNode(part.text))),
  );
  element.classList.toggle("empty", text === "");
  if (text === "") element.textContent = placeholder;
  return element;
}

/** An inline element with bytes of a client. */
export function raw(text, placeholder) {
  return showRaw(h("span"), text, placeholder);
}

/** A link to a namespace or a key of it. Only the text if the name of the namespace is not UTF-8: no URL can name it. */
export function namespaceLink(isText, href, className, text) {
  if (isText) return h("a", { href, class: className }, text);
  return h("span", { class: className, title: "The name of the namespace is not UTF-8: use waymaker-ctl." }, text);
}

/**
 * A table whose rows stay in the document while their values change.
 *
 * A column has `name`, `label`, `render(cell, item)` and optionally: `numeric`; `once`, if the cell never changes;
 * `value(item)`, which makes the column sortable. `options`: `caption` (for screen readers), `test`, `class`,
 * `id(item, index)`, `attributes(item)` for the row, `href`: a click on a row follows the link in it, `empty` (text
 * without rows), `sort` (`{name, descending}`), `steady`: keep the order while the pointer or the focus is in the table.
 */
export class Table {
  constructor(columns, options) {
    this.columns = columns;
    this.options = options;
    this.sort = options.sort ?? null;
    this.rows = new Map();
    this.items = [];
    this.heads = columns.map((column) => this.#head(column));
    this.body = h("tbody", { role: "rowgroup" });
    this.empty = h("p", { class: "none", "data-test": `${options.test}-empty`, hidden: true }, options.empty ?? "");
    const table = h(
      "table",
      { role: "table", "data-test": options.test, hidden: true },
      h("caption", { class: "unseen" }, options.caption),
      h("thead", { role: "rowgroup" }, h("tr", { role: "row" }, this.heads)),
      this.body,
    );
    this.table = table;
    this.element = h("div", { class: `table ${options.class ?? ""}` }, table, this.empty);
    if (options.href) this.body.addEventListener("click", (event) => this.#follow(event));
    this.#showSort();
  }

  #head(column) {
    const attributes = {
      role: "columnheader",
      scope: "col",
      class: column.numeric ? "numeric" : null,
      "data-column": column.name,
    };
    if (!column.value) return h("th", attributes, column.label);
    const toggle = () => {
      const descending = this.sort?.name === column.name ? !this.sort.descending : Boolean(column.numeric);
      this.sort = { name: column.name, descending };
      this.#showSort();
      this.update(this.items, true);
    };
    return h(
      "th",
      attributes,
      h("button", { type: "button", class: "sort", "data-test": `sort-${column.name}`, click: toggle }, column.label),
    );
  }

  #showSort() {
    this.columns.forEach((column, index) => {
      if (!column.value) return;
      const order = this.sort?.name === column.name ? (this.sort.descending ? "descending" : "ascending") : "none";
      setAttribute(this.heads[index], "aria-sort", order);
    });
  }

  /** A click anywhere in a row follows the link of the row, unless it selects text or hits a control. */
  #follow(event) {
    if (event.target.closest("a, button") || String(getSelection()) !== "") return;
    const link = event.target.closest("tr")?.querySelector("a[href]");
    if (link) link.click();
  }

  #sorted(items) {
    const column = this.columns.find((other) => other.name === this.sort?.name);
    if (!column) return items;
    const sign = this.sort.descending ? -1 : 1;
    const compare = (left, right) => (left < right ? -1 : left > right ? 1 : 0);
    return [...items].sort((left, right) => sign * compare(column.value(left), column.value(right)));
  }

  /** Shows these items. Existing rows keep their elements. */
  update(items, reorder = false) {
    this.items = items;
    const steady = this.options.steady && !reorder && this.rows.size > 0 && this.body.matches(":hover, :focus-within");
    const seen = new Set();
    const wanted = this.#sorted(items).map((item, index) => {
      const id = this.options.id(item, index);
      seen.add(id);
      let row = this.rows.get(id);
      if (!row) {
        row = this.#row(item);
        this.rows.set(id, row);
      }
      this.columns.forEach((column, index) => {
        if (!column.once) column.render(row.cells[index], item);
      });
      row.classList.remove("gone");
      return row;
    });
    for (const [id, row] of this.rows) {
      if (seen.has(id)) continue;
      if (steady) {
        row.classList.add("gone");
      } else {
        row.remove();
        this.rows.delete(id);
      }
    }
    if (steady) {
      this.body.append(...wanted.filter((row) => !row.isConnected));
    } else {
      this.#order(wanted);
    }
    this.empty.hidden = this.rows.size > 0;
    this.table.hidden = this.rows.size === 0;
  }

  #row(item) {
    const cells = this.columns.map((column) => {
      const cell = h("td", {
        role: "cell",
        class: column.numeric ? "numeric" : null,
        "data-column": column.name,
        "data-label": column.label,
      });
      if (column.once) column.render(cell, item);
      return cell;
    });
    const row = h("tr", { role: "row", ...this.options.attributes?.(item) }, cells);
    if (this.options.href) row.classList.add("link");
    return row;
  }

  #order(wanted) {
    const focused = this.body.contains(document.activeElement) ? document.activeElement : null;
    wanted.forEach((row, index) => {
      if (this.body.children[index] !== row) this.body.insertBefore(row, this.body.children[index] ?? null);
    });
    // Moving a row takes the focus from its link.
    if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
  }
}

/** Names the view in the title of the tab. */
export function showTitle(title) {
  document.title = `${title} – Waymaker console`;
}

/** A heading with an explanation below it. */
export function heading(level, text, explanation) {
  return h(
    "div",
    { class: "heading" },
    h(`h${level}`, {}, text),
    explanation ? h("p", { class: "explanation" }, explanation) : null,
  );
}
