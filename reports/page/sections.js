// A page of sections: each a card with its table and its figures.

const SERIES_COLORS = ["#3d73d9", "#ee9a2e", "#2f9e6e", "#c44ea1", "#7a5bd1", "#d8434e", "#3fa7b5", "#8a7a4f"];
const LINES = { solid: "solid", dash: "dash", points: "solid" };

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

function seriesOf(figure) {
  return figure.series.map((s, i) => {
    const color = SERIES_COLORS[i % SERIES_COLORS.length];
    const bounds = s.high.length
      ? { error_y: { type: "data", symmetric: false, array: s.high.map((h, k) => h - s.y[k]), arrayminus: s.low.map((l, k) => s.y[k] - l), thickness: 1, width: 3, color } }
      : {};
    const mode = s.line === "points" ? "markers" : s.x.length > 60 || s.line === "dash" ? "lines" : "lines+markers";
    return { type: "scatter", mode, name: plotText(s.name), x: s.x, y: s.y, line: { color, width: 2, dash: LINES[s.line] }, marker: { color, size: 7 }, ...bounds };
  });
}

// 1, 2 and 5 times the powers of ten around the values of a logarithmic axis, in plain digits; of a long axis none.
function roundTicks(values) {
  const known = values.filter((v) => v > 0);
  const [low, high] = [Math.floor(Math.log10(Math.min(...known))), Math.ceil(Math.log10(Math.max(...known)))];
  if (!known.length || high - low > 3 || low < -3 || high > 6) return {};
  const ticks = [];
  for (let power = low - 1; power <= high; power++) for (const digit of [1, 2, 5]) ticks.push(Number(`${digit}e${power}`));
  return { tickmode: "array", tickvals: ticks, ticktext: ticks.map(String) };
}

function figureNode(figure) {
  const node = el("div", { class: "chart", style: { height: "380px" }, role: "img", "aria-label": clean(figure.title) });
  const axis = (title, log) => ({ title: { text: plotText(title) }, type: log ? "log" : "linear", exponentformat: "power" });
  const marked = figure.x_ticks.length ? { tickmode: "array", tickvals: figure.x_ticks, ticktext: figure.x_ticks.map(String) } : {};
  const upright = figure.log_y ? roundTicks(figure.series.flatMap((s) => s.y)) : figure.y.startsWith("%") ? { rangemode: "tozero" } : {};
  const make = () => ({ data: seriesOf(figure), layout: { xaxis: { ...axis(figure.x, figure.log_x), ...marked }, yaxis: { ...axis(figure.y, figure.log_y), ...upright }, legend: { orientation: "h", x: 0, y: -0.22, yanchor: "top" }, showlegend: true } });
  return { nodes: [el("h2", {}, clean(figure.title)), node], draw: () => chart(node, make) };
}

// A list: entries with lines that explain them.
function listNode(part) {
  const items = part.items.map((item) => el("li", {}, clean(item.head, 600), item.lines.map((line) => el("p", { class: "minor" }, clean(line, 1200)))));
  return items.length ? el(part.numbered ? "ol" : "ul", { class: part.numbered ? "" : "plain" }, items) : null;
}

function sectionCard(part) {
  const { table } = part, figures = part.figures.map(figureNode);
  const title = part.title || (table && table.title);
  const notes = [...(table ? table.notes : []), ...part.notes].map((text) => el("p", { class: "note" }, clean(text, 700)));
  const node = el("section", { class: "card span-12" }, title ? el("h2", {}, clean(title)) : null,
    part.text.map((text) => el("p", {}, clean(text, 1500))), listNode(part), part.code ? el("pre", {}, clean(part.code, 20000)) : null,
    table ? tableNode(table) : null, figures.map((f) => f.nodes), notes);
  return { node, draw: () => Promise.all(figures.map((f) => f.draw())) };
}
