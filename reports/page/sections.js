// A page of sections: each a card with its table and its figures.

const SERIES_COLORS = ["#3d73d9", "#ee9a2e", "#2f9e6e", "#c44ea1", "#7a5bd1", "#d8434e", "#3fa7b5", "#8a7a4f"];

function heading(page) {
  byId("title").append(clean(page.title));
  byId("settings").append(...page.settings.map((text) => el("span", { class: "chip" }, clean(text))));
  if (page.verdict.length) byId("verdict").append(el("div", { class: `verdict${page.bad ? " bad" : ""}` }, verdictNodes(page)));
}

function verdictNodes(page) {
  const [first, ...rest] = page.verdict;
  return [el("p", { class: "lead" }, clean(first, 600)), rest.length ? el("ul", {}, rest.map((text) => el("li", {}, clean(text, 600)))) : null];
}

function tableNode(table) {
  const columns = table.columns.map((c, i) => ({
    head: c.head, unit: c.unit, right: c.right, first: i === 0,
    cell: (row) => (row[i].tone ? el("span", { class: `tone-${row[i].tone}` }, clean(row[i].text)) : clean(row[i].text)),
  }));
  return el("div", { class: "scroll" }, plainTable(columns, table.rows));
}

// Of areas upon one another the upper edges, the highest first: each covers what is above the next one.
function seriesOf(figure) {
  const edge = figure.series.map(() => []), below = [];
  figure.series.forEach((s, i) => { if (s.line === "stack") s.y.forEach((y, k) => { edge[i][k] = below[k] = (below[k] || 0) + y; }); });
  const areas = figure.series.some((s) => s.line === "stack");
  const made = figure.series.map((s, i) => ({
    ...(s.line === "stack" ? { fill: 0.75, step: true } : {}),
    kind: s.line === "points" ? "points" : "line", name: clean(s.name), x: s.x, y: s.line === "stack" ? edge[i] : s.y, low: s.low, high: s.high,
    color: SERIES_COLORS[i % SERIES_COLORS.length], dash: s.line === "dash", dots: s.x.length <= 60 && s.line !== "dash" && s.line !== "stack",
    hover: s.x.map((x, k) => [clean(s.name), `${clean(figure.x)} ${plain(x)}`, `${plain(s.y[k])} ${clean(figure.y)}`,
      s.high.length && known(s.low[k]) ? `95 % interval ${plain(s.low[k])} to ${plain(s.high[k])}` : ""]),
  }));
  return areas ? made.reverse() : made;
}

const plain = (value) => (known(value) ? Number(value.toPrecision(4)).toLocaleString("en-US", { maximumSignificantDigits: 6 }) : ABSENT);

function figureNode(figure) {
  const node = el("div", { class: "chart", style: { height: "380px" }, role: "img", "aria-label": clean(figure.title) });
  const ticks = figure.x_ticks.length ? { ticks: figure.x_ticks.map((x) => [x, String(x)]) } : {};
  const x = { title: clean(figure.x), log: figure.log_x, ...ticks };
  const y = { title: clean(figure.y), log: figure.log_y, zero: figure.y.startsWith("%") || figure.series[0].line === "stack" };
  chart(node, () => ({ series: seriesOf(figure), x, y, legend: true }));
  return [el("h2", {}, clean(figure.title)), node];
}

// A list: entries with lines that explain them.
function listNode(part) {
  const items = part.items.map((item) => el("li", {}, clean(item.head, 600), item.lines.map((line) => el("p", { class: "minor" }, clean(line, 1200)))));
  return items.length ? el(part.numbered ? "ol" : "ul", { class: part.numbered ? "" : "plain" }, items) : null;
}

function sectionCard(part) {
  const { table } = part, title = part.title || (table && table.title);
  const notes = [...(table ? table.notes : []), ...part.notes].map((text) => el("p", { class: "note" }, clean(text, 700)));
  return el("section", { class: "card span-12" }, title ? el("h2", {}, clean(title)) : null,
    part.text.map((text) => el("p", {}, clean(text, 1500))), listNode(part), part.code ? el("pre", {}, clean(part.code, 20000)) : null,
    table ? tableNode(table) : null, part.figures.map(figureNode), notes);
}
