// The step by module: a tree in a table, each row with its own and its children's time.

const OPEN_DEPTH = 3;

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
    const heads = [["Module"], ["Time", this.times.suffix], ["Share"], ["Kernels"], ["Efficiency"], ["Headroom", this.headrooms.suffix]];
    const table = el("table", { class: "tree" }, el("thead", {}, el("tr", {}, heads.map(([h, u], i) => el("th", { scope: "col", class: [2, 3, 5].includes(i) ? "right" : null }, h, unit(u))))), this.body);
    this.node = card("Module tree", "each module with everything inside it", "span-7",
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

  draw(focused) {
    const rows = [];
    const add = (node, depth) => {
      rows.push(this.row(node, depth));
      if (this.open.has(node)) [...node.children].sort((a, b) => b.total.time_ns - a.total.time_ns).forEach((child) => add(child, depth + 1));
    };
    add(this.root, 0);
    this.body.replaceChildren(...rows);
    if (focused) rows.find((row) => row.node === focused)?.querySelector("button").focus();
  }

  row(node, depth) {
    const g = node.total, leaf = !node.children.length, open = this.open.has(node);
    const label = el("button", {
      type: "button", class: "twig", "aria-expanded": leaf ? null : String(open), style: { paddingLeft: `${depth * 18}px` }, title: clean(node.path || node.name, 300),
      onclick: () => this.toggle(node),
    }, el("span", { class: "twist", "aria-hidden": "true" }, leaf ? "" : open ? "▾" : "▸"), el("code", {}, clean(node.name, 80)));
    const row = el("tr", {}, el("th", { scope: "row" }, label),
      el("td", { class: "timecell" }, bar(g.time_ns / this.root.total.time_ns, number(g.time_ns, this.times))),
      el("td", { class: "right" }, percent(g.share)), el("td", { class: "right" }, amount(g.count, "count")),
      el("td", { class: "effcell" }, efficiencyBar(g)), el("td", { class: "right" }, number(g.headroom_ns, this.headrooms)));
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
