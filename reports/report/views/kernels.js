// The kernel table: sortable, filterable, each row opening to all that is known of it.

const FIRST_ROWS = 25;

const OPERATORS = { title: "Operators", small: "that kernels serve, fused kernels in parts; of a backward kernel the forward operator", head: "Operator", filter: "Filter by name", few: 12 };
const KERNELS = { title: "Kernels", small: "by name and shapes", head: "Kernel", filter: "Filter by name or shape" };

class KernelTable {
  constructor({ kernels }, words = KERNELS) {
    this.groups = kernels;
    this.sort = { key: "time", down: true };
    this.open = new Set();
    this.limit = words.few || FIRST_ROWS;
    this.columns = kernelColumns(this.groups, words.head);
    this.text = el("input", { type: "search", placeholder: words.filter, "aria-label": words.filter, oninput: () => this.draw() });
    this.family = this.selection("All kernel types", this.groups.map((g) => g.family));
    this.family.hidden = !this.columns.some((c) => c.key === "family");
    this.pass = this.selection("All passes", this.groups.flatMap((g) => g.passes));
    this.pass.hidden = !this.columns.some((c) => c.key === "pass");
    this.summary = el("span", { class: "note", role: "status" });
    this.table = el("table", { class: "kernels" });
    this.more = el("button", { type: "button", class: "quiet more", onclick: () => { this.limit = Infinity; this.draw(); } });
    this.node = card(words.title, words.small, "span-12",
      el("div", { class: "controls" }, this.text, this.family, this.pass, this.summary), el("div", { class: "scroll" }, this.table), this.more);
    this.draw();
  }

  selection(all, values) {
    const names = [...new Set(values)].filter(Boolean).sort();
    return el("select", { "aria-label": all, onchange: () => this.draw() }, el("option", { value: "" }, all),
      names.map((name) => el("option", { value: name }, clean(name, 60))));
  }

  // Show the kernel that a point of the roofline stands for.
  find(label) {
    const group = this.groups.find((g) => labelOf(g) === label) || this.groups.find((g) => label.startsWith(g.key));
    this.text.value = group ? group.key : label;
    this.family.value = this.pass.value = "";
    if (group) this.open = new Set([group]);
    this.draw();
    this.node.scrollIntoView({ behavior: "smooth", block: "start" });
  }

  chosen() {
    const words = this.text.value.toLowerCase().split(/\s+/).filter(Boolean);
    const column = this.columns.find((c) => c.key === this.sort.key);
    const rows = this.groups.filter((g) => {
      const text = `${labelOf(g)} ${g.example}`.toLowerCase();
      return words.every((w) => text.includes(w)) && (!this.family.value || g.family === this.family.value) && (!this.pass.value || g.passes.includes(this.pass.value));
    });
    return rows.sort((a, b) => compareValues(column.value(a), column.value(b), this.sort.down));
  }

  draw() {
    const rows = this.chosen();
    const shown = rows.slice(0, this.limit);
    const sum = (pick) => rows.reduce((total, g) => total + (known(pick(g)) ? pick(g) : 0), 0);
    this.summary.textContent = `${rows.length} of ${this.groups.length} · ${amount(sum((g) => g.time_ns), "ns")} · ${percent(sum((g) => g.share))} of kernel time${this.columns.some((c) => c.key === "headroom") ? ` · headroom ${amount(sum((g) => g.headroom_ns), "ns")}` : ""}`;
    this.table.replaceChildren(el("thead", {}, headRow(this.columns, this.sort, (c) => this.order(c))), el("tbody", {}, shown.flatMap((g) => this.row(g))));
    this.more.hidden = shown.length === rows.length;
    this.more.textContent = `Show all ${rows.length}`;
  }

  order(column) {
    this.sort = { key: column.key, down: this.sort.key === column.key ? !this.sort.down : !column.text };
    this.draw();
    this.table.querySelector(`button[data-key="${column.key}"]`).focus();
  }

  row(g) {
    const open = this.open.has(g);
    const toggle = () => { this.open[open ? "delete" : "add"](g); this.draw(); };
    const cells = this.columns.map((c) => el("td", { class: c.right ? "right" : c.class }, c.cell(g, open, toggle)));
    const line = el("tr", { class: "kernel" }, cells);
    return open ? [line, el("tr", { class: "details" }, el("td", { colspan: this.columns.length }, kernelDetails(g)))] : [line];
  }
}

const shortPass = (name) => ({ encoder: "enc", forward: "fwd", classifier: "cls", backward: "bwd", optimizer: "opt" })[name] || clean(name, 20);

const labelOf = (g) => `${g.key} ${g.shapes}`.trim();

// The heads of a sortable table's columns, as buttons; an arrow on the one it is sorted by.
function headRow(columns, sort, order) {
  return el("tr", {}, columns.map((c) => {
    const active = sort.key === c.key;
    const sorted = active ? (sort.down ? "descending" : "ascending") : null;
    return el("th", { scope: "col", class: c.right ? "right" : c.class, "aria-sort": sorted },
      el("button", { type: "button", class: "sort", "data-key": c.key, onclick: () => order(c) }, c.head, unit(c.unit), el("span", { class: "arrow" }, active ? (sort.down ? " ▾" : " ▴") : "")));
  }));
}

// Unknown values stand last whichever way the column is sorted.
function compareValues(a, b, down) {
  const absent = (v) => v === null || v === undefined || v === "";
  if (absent(a) || absent(b)) return Number(absent(a)) - Number(absent(b));
  const order = typeof a === "string" ? a.localeCompare(b) : a - b;
  return down ? -order : order;
}

function kernelColumns(groups, head) {
  const times = columnScale(groups.map((g) => g.time_ns), "ns");
  const longest = Math.max(...groups.map((g) => g.time_ns), 0);
  const column = (key, head, unitName, value) => {
    const scale = columnScale(groups.map(value), unitName);
    return { key, head, unit: scale.suffix, right: true, value, cell: (g) => number(value(g), scale) };
  };
  const judged = groups.some((g) => known(g.efficiency));
  const reason = (g) => why(g, judged);
  const passes = groups.some((g) => g.passes.some((p) => p !== "unknown"));
  return [
    { key: "name", head, text: true, class: "namecell", value: labelOf, cell: kernelName },
    ...(groups.some((g) => g.family) ? [{ key: "family", head: "Type", text: true, value: (g) => g.family, cell: (g) => [dot(g.family, "family"), clean(g.family, 40)] }] : []),
    ...(passes ? [{ key: "pass", head: "Pass", text: true, value: (g) => g.passes.join(" "), cell: (g) => el("span", { class: "passes" }, g.passes.map((p) => el("span", { title: clean(p, 40) }, dot(p, "pass"), shortPass(p)))) }] : []),
    column("count", "Count", "count", (g) => g.count),
    { key: "time", head: "Time", unit: times.suffix, class: "timecell", value: (g) => g.time_ns, cell: (g) => bar(g.time_ns / longest, number(g.time_ns, times), "", colorOf(g.family, "family")) },
    { key: "share", head: "Share", right: true, value: (g) => g.share, cell: (g) => percent(g.share) },
    ...(groups.some((g) => g.fused_ns) ? [{ key: "fused", head: "In fused kernels", right: true, value: (g) => g.fused_ns / g.time_ns, cell: (g) => percent(g.fused_ns / g.time_ns) }] : []),
    ...(groups.some((g) => known(g.flop_rate)) ? [column("rate", "Rate", "FLOP/s", (g) => g.flop_rate)] : []),
    ...(groups.some((g) => known(g.bandwidth)) ? [column("bandwidth", "Bandwidth", "B/s", (g) => g.bandwidth)] : []),
    ...(judged ? [{ key: "efficiency", head: "Efficiency", class: "effcell", value: (g) => g.efficiency, cell: efficiencyBar }, column("headroom", "Headroom", "ns", (g) => g.headroom_ns)] : []),
    ...(groups.some(reason) ? [{ key: "why", head: "Why", text: true, class: "whycell", value: reason, cell: (g) => clean(reason(g), 120) || ABSENT }] : []),
    ...(judged ? [{ key: "bound", head: "Bound by", text: true, value: (g) => g.bound, cell: (g) => clean(g.bound, 40) || ABSENT }] : []),
  ];
}

// Why a kernel takes its time, or is not judged, in a few words.
const why = (g, judged = true) => (g.reasons.length ? g.reasons[0].label : known(g.efficiency) || !judged ? "" : g.withheld);

function kernelName(g, open, toggle) {
  return el("button", { type: "button", class: "name", "aria-expanded": String(open), onclick: toggle, title: clean(labelOf(g), 400) },
    el("code", {}, clean(g.key, 140)), el("span", { class: "shapes" }, clean(g.shapes, 140)));
}

function kernelDetails(g) {
  const facts = [
    ["As captured", clean(g.example || g.key, 2000)], ["Shapes", clean(g.shapes, 1000) || ABSENT],
    ["Work", limit(g.flop, "FLOP", inPart(g.flop_known_ns, g.time_ns))],
    ["Bytes moved", limit(g.bytes, "B", inPart(g.bytes_known_ns, g.time_ns))], ["Intensity", amount(g.intensity, "FLOP/B")],
    ["Roof time", amount(g.roof_ns, "ns")], ["Judged time", amount(g.judged_ns, "ns")], ["Ceiling", clean(g.ceiling, 200) || "unknown"],
    ["One call", amount(g.time_ns / g.count, "ns")],
  ];
  for (const reason of g.reasons) facts.push(["Why", clean(`${reason.text}.`, 600)]);
  if (g.withheld) facts.push(["Not judged", `${clean(g.withheld, 60)}: ${amount(g.withheld_ns, "ns")}`]);
  if (g.helped_ns) facts.push(["Held by a cache", `${amount(g.helped_ns, "ns")} of it, faster than measured because more of the bytes lay in a cache, counts as at the roof`]);
  if (g.above_ns) facts.push(["Above its roof", `${amount(g.above_ns, "ns")} of it: the measurement or the model of its work is wrong`]);
  return el("dl", { class: "facts" }, facts.map(([name, text]) => el("div", {}, el("dt", {}, name), el("dd", {}, text))));
}
