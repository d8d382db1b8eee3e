// The step by module: a tree in a table, each row with its own and its children's time. Modules stand in the order of
// the model; a click on a column sorts the children of each, a click on "Module" brings the order of the model back.

const OPEN_DEPTH = 3;
const MODEL_ORDER = { key: "", down: false };

class ModuleTree {
  constructor(root) {
    this.root = root;
    this.open = new Set();
    this.visit(root, 0, (node, depth) => { if (depth < OPEN_DEPTH) this.open.add(node); });
    const totals = [];
    this.visit(root, 0, (node) => totals.push(node.total));
    this.times = columnScale(totals.map((g) => g.time_ns), "ns");
    this.headrooms = columnScale(totals.map((g) => g.headroom_ns), "ns");
    this.body = el("tbody", { onkeydown: (event) => this.key(event) });
    this.columns = this.makeColumns();
    this.sort = MODEL_ORDER;
    this.head = el("thead");
    const table = el("table", { class: "tree" }, this.head, this.body);
    this.node = card("Module tree", "each module with everything inside it, in the order of the model", "span-7",
      el("div", { class: "controls" }, this.button("Expand all", () => this.visit(root, 0, (n) => this.open.add(n))), this.button("Collapse all", () => { this.open = new Set([root]); })),
      el("div", { class: "scroll tall" }, table));
    this.draw();
  }

  visit(node, depth, call) {
    call(node, depth);
    node.children.forEach((child) => this.visit(child, depth + 1, call));
  }

  button(text, change) {
    return el("button", { type: "button", class: "quiet", onclick: () => { change(); this.draw(); } }, text);
  }

  makeColumns() {
    const times = this.times, headrooms = this.headrooms;
    return [
      { key: "module", head: "Module" },
      { key: "time", head: "Time", unit: times.suffix, class: "timecell", value: (g) => g.time_ns, cell: (g) => bar(g.time_ns / this.root.total.time_ns, number(g.time_ns, times)) },
      { key: "share", head: "Share", right: true, value: (g) => g.share, cell: (g) => percent(g.share) },
      { key: "count", head: "Kernels", right: true, value: (g) => g.count, cell: (g) => amount(g.count, "count") },
      { key: "efficiency", head: "Efficiency", class: "effcell", value: (g) => g.efficiency, cell: efficiencyBar },
      { key: "headroom", head: "Headroom", unit: headrooms.suffix, right: true, value: (g) => g.headroom_ns, cell: (g) => number(g.headroom_ns, headrooms) },
    ];
  }

  // The children of a node as they stand: the report has them in the order of the model.
  ordered(children) {
    const by = this.columns.find((c) => c.key === this.sort.key);
    return by ? [...children].sort((a, b) => compareValues(by.value(a.total), by.value(b.total), this.sort.down)) : children;
  }

  order(column) {
    this.sort = column.value ? { key: column.key, down: this.sort.key !== column.key || !this.sort.down } : MODEL_ORDER;
    this.draw();
    this.head.querySelector(`button[data-key="${column.key}"]`).focus();
  }

  draw(focused) {
    const rows = [];
    const add = (node, depth) => {
      rows.push(this.row(node, depth));
      if (this.open.has(node)) this.ordered(node.children).forEach((child) => add(child, depth + 1));
    };
    add(this.root, 0);
    this.head.replaceChildren(headRow(this.columns, this.sort, (column) => this.order(column)));
    this.body.replaceChildren(...rows);
    if (focused) rows.find((row) => row.node === focused)?.querySelector("button").focus();
  }

  row(node, depth) {
    const g = node.total, leaf = !node.children.length, open = this.open.has(node);
    const label = el("button", {
      type: "button", class: "twig", "aria-expanded": leaf ? null : String(open), style: { paddingLeft: `${depth * 18}px` }, title: clean(node.path || node.name, 300),
      onclick: () => this.toggle(node),
    }, el("span", { class: "twist", "aria-hidden": "true" }, leaf ? "" : open ? "▾" : "▸"), el("code", {}, clean(node.name, 80)));
    const cells = this.columns.filter((c) => c.cell).map((c) => el("td", { class: c.right ? "right" : c.class }, c.cell(g)));
    const row = el("tr", {}, el("th", { scope: "row" }, label), cells);
    row.node = node;
    return row;
  }

  toggle(node) {
    if (!node.children.length) return;
    this.open[this.open.has(node) ? "delete" : "add"](node);
    this.draw(node);
  }

  // Right opens, left closes, up and down move: as trees do everywhere.
  key(event) {
    const row = event.target.closest("tr");
    const move = { ArrowDown: row.nextElementSibling, ArrowUp: row.previousElementSibling }[event.key];
    if (move) move.querySelector("button").focus();
    else if (event.key === "ArrowRight" && !this.open.has(row.node)) this.toggle(row.node);
    else if (event.key === "ArrowLeft" && this.open.has(row.node)) this.toggle(row.node);
    else return;
    event.preventDefault();
  }
}
