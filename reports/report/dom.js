// Elements from data: every string becomes a text node, so nothing in a report can become markup.

function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(node.style, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

const byId = (id) => document.getElementById(id);

// Control, format and unassigned characters show as escapes; long text loses its middle.
function clean(text, limit = 300) {
  let shown = String(text === null || text === undefined ? "" : text);
  if (shown.length > limit) shown = `${shown.slice(0, Math.ceil(limit * 0.6))}…${shown.slice(-Math.floor(limit * 0.4))}`;
  const escape = (code) => (code < 256 ? `\\x${code.toString(16).padStart(2, "0")}` : `\\u${code.toString(16).padStart(4, "0")}`);
  return shown.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => escape(c.codePointAt(0)));
}

// A table from columns {head, right, cell(row)}; `rowClass(row)` may name a class.
function plainTable(columns, rows, rowClass) {
  const head = el("tr", {}, columns.map((c) => el("th", { scope: "col", class: c.right ? "right" : null }, c.head, unit(c.unit))));
  const body = rows.map((row) =>
    el("tr", { class: rowClass ? rowClass(row) : null },
      columns.map((c) => el(c.first ? "th" : "td", { class: c.right ? "right" : c.class, scope: c.first ? "row" : null }, c.cell(row)))));
  return el("table", {}, el("thead", {}, head), el("tbody", {}, body));
}

// A module path that may break after its dots.
const breakable = (path) => path.split(/(?<=\.)/).flatMap((part) => [part, el("wbr")]);

const unit = (suffix) => (suffix ? el("span", { class: "unit" }, ` ${suffix}`) : null);

// A choice between a few named values, as buttons of which one is pressed.
function choice(label, names, start, onchange) {
  const buttons = names.map(([value, text]) =>
    el("button", {
      type: "button", "aria-pressed": String(value === start),
      onclick: (event) => {
        buttons.forEach((b) => b.setAttribute("aria-pressed", String(b === event.currentTarget)));
        onchange(value);
      },
    }, text));
  return el("div", { class: "choice", role: "group", "aria-label": label }, buttons);
}

// A table of which the first `few` rows show, and a button for the rest.
function shortened(few, rows, make) {
  const box = el("div", { class: "scroll" }, make(rows.slice(0, few)));
  if (rows.length <= few) return box;
  const more = el("button", { type: "button", class: "quiet more", onclick: () => { box.replaceChildren(make(rows)); more.remove(); } },
    `Show all ${rows.length}`);
  return el("div", {}, box, more);
}

// Do it when all that was put into the page has its size and its charts.
const whenDrawn = (done) => requestAnimationFrame(() => requestAnimationFrame(done));
