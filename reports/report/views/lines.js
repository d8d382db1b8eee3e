// Source lines: what each takes of the host, launches, waits for and allocates; sortable, and folded by function.

const LINE_ROWS = 15;

const lineOf = (l) => `${l.file}${l.line ? `:${l.line}` : ""} in ${l.function}${l.exact ? "" : " (its first line)"}`;

class LineTable {
  constructor(backend) {
    this.lines = backend.lines;
    this.folded = false;
    this.sort = { key: "host", down: true };
    this.limit = LINE_ROWS;
    this.columns = lineColumns(this.lines);
    this.text = el("input", { type: "search", placeholder: "Filter by file, function or text", "aria-label": "Filter by file, function or text", oninput: () => this.draw() });
    const fold = choice("Rows", [["line", "Lines"], ["function", "Functions"]], "line", (value) => { this.folded = value === "function"; this.draw(); });
    this.table = el("table", { class: "lines" });
    this.more = el("button", { type: "button", class: "quiet more", onclick: () => { this.limit = Infinity; this.draw(); } });
    this.node = card("Lines", "of source code: the host's time, of which Python lies between operators, and what each line launches, its backward pass too", "span-12",
      el("div", { class: "controls" }, this.text, fold), el("div", { class: "scroll" }, this.table), this.more);
    this.draw();
  }

  chosen() {
    const wanted = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.lines.filter((l) => wanted.every((w) => `${lineOf(l)} ${l.code}`.toLowerCase().includes(w)));
    const column = this.columns.find((c) => c.key === this.sort.key);
    return (this.folded ? byFunction(found) : found).sort((a, b) => compareValues(column.value(a), column.value(b), this.sort.down));
  }

  draw() {
    const rows = this.chosen(), shown = rows.slice(0, this.limit);
    const body = shown.map((l) => el("tr", {}, this.columns.map((c) => el("td", { class: c.right ? "right" : c.class }, c.cell(l)))));
    this.table.replaceChildren(el("thead", {}, headRow(this.columns, this.sort, (c) => this.order(c))), el("tbody", {}, body));
    this.more.hidden = shown.length === rows.length;
    this.more.textContent = `Show all ${rows.length}`;
  }

  order(column) {
    this.sort = { key: column.key, down: this.sort.key === column.key ? !this.sort.down : !column.text };
    this.draw();
    this.table.querySelector(`button[data-key="${column.key}"]`).focus();
  }
}

// The sums of the lines of each function, in a row without a line.
function byFunction(lines) {
  const found = new Map();
  for (const l of lines) {
    const key = `${l.file}\0${l.function}`, known_ = found.get(key);
    if (!known_) { found.set(key, { ...l, line: 0, exact: true, code: "", library: "" }); continue; }
    for (const name of ["host_ns", "python_ns", "kernel_ns", "kernels", "waits", "wait_ns", "idle_ns", "bytes"]) known_[name] = known(l[name]) ? (known_[name] || 0) + l[name] : known_[name];
  }
  return [...found.values()];
}

function lineColumns(lines) {
  const column = (key, head, unitName, value) => {
    const scale = columnScale(lines.map(value), unitName);
    return { key, head, unit: scale.suffix, right: true, value, cell: (l) => number(value(l), scale) };
  };
  const some = (value) => lines.some((l) => value(l));
  return [
    { key: "line", head: "Line", text: true, class: "namecell", value: lineOf, cell: (l) => [el("code", { title: clean(l.library, 200) }, clean(lineOf(l), 160)), l.code ? el("span", { class: "shapes" }, clean(l.code, 160)) : null] },
    column("host", "Host", "ns", (l) => l.host_ns),
    column("python", "Python", "ns", (l) => l.python_ns),
    ...(some((l) => l.idle_ns) ? [column("idle", "GPU idle", "ns", (l) => l.idle_ns)] : []),
    column("kernel", "Launches", "ns", (l) => l.kernel_ns),
    ...(some((l) => l.waits) ? [column("waits", "Syncs", "count", (l) => l.waits)] : []),
    ...(some((l) => l.bytes) ? [column("bytes", "Allocates", "iB", (l) => l.bytes)] : []),
  ];
}
