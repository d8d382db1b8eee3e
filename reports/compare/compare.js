// What a comparison has beyond a page of tables: a waterfall for each pair, and a tree that opens and closes.

const FOUND = REPORT;
const SHARE_OF_AXIS = 0.15; // what is left under the lowest point of a waterfall whose axis does not begin at 0

// The steps of a waterfall: the first side, a bar for each part, the second side.
function waterfallSteps(pair) {
  const parts = pair.waterfall.lines.filter((line) => line.level === 0 && Math.abs(line.difference_ns) > 0);
  const heights = [pair.waterfall.first_ns];
  for (const part of parts) heights.push(heights[heights.length - 1] + part.difference_ns);
  return { parts, heights };
}

function waterfallChart(pair) {
  const { parts, heights } = waterfallSteps(pair);
  const scale = columnScale(heights, "ns");
  const scaled = (ns) => ns / scale.factor;
  const low = Math.min(...heights), high = Math.max(...heights), span = high - low || high || 1;
  const cut = low - SHARE_OF_AXIS * span > 0 ? low - SHARE_OF_AXIS * span : 0;
  const names = [pair.first, ...parts.map((p) => p.name), pair.second];
  const places = names.map((_, i) => i);
  const deltas = [null, ...parts.map((p) => p.difference_ns), null];
  const hover = names.map((name, i) => (deltas[i] === null
    ? `${clean(name)}: ${amount(i ? pair.waterfall.second_ns : pair.waterfall.first_ns, "ns")}`
    : `${clean(name)}: ${deltas[i] > 0 ? "+" : "−"}${amount(Math.abs(deltas[i]), "ns")}`));
  const ends = places.map((i) => {
    if (i === 0) return [0, pair.waterfall.first_ns];
    if (i === places.length - 1) return [0, pair.waterfall.second_ns];
    return [heights[i - 1], heights[i]];
  });
  const color = (i) => `var(--${deltas[i] === null ? "accent" : deltas[i] > 0 ? "poor-fill" : "good-fill"})`;
  return {
    series: [{ kind: "bars", base: ends.map(([base]) => Math.max(scaled(base), scaled(cut))), value: ends.map(([, end]) => scaled(end)), color: places.map(color), hover }],
    x: { categories: names.map((n) => clean(n, 36)), tilted: names.length > 6 },
    y: { title: `${scale.suffix}${cut > 0 ? ", axis cut" : ""}`, range: [scaled(cut), scaled(high + SHARE_OF_AXIS * span)] },
  };
}

function cardTitled(start, number) {
  const places = PAGE.sections.flatMap(({ table }, i) => (table && table.title.startsWith(start) ? [i] : []));
  return places.length > number ? built[places[number]] : null;
}

function addWaterfalls() {
  FOUND.pairs.filter((pair) => pair.waterfall).forEach((pair, number) => {
    const card = cardTitled("Where the difference comes from", number);
    if (!card) return;
    const node = el("div", { class: "chart waterfall", style: { height: "360px" }, role: "img", "aria-label": "Where the difference comes from" });
    card.querySelector("h2").after(node);
    chart(node, () => waterfallChart(pair));
  });
}

// Rows below a shut place do not show.
function foldTree() {
  const card = cardTitled("The step, side by side", 0);
  if (!card) return;
  const rows = [...card.querySelectorAll("tbody tr")];
  const levels = FOUND.tree.map((line) => line.level);
  const open = levels.map((level) => level === 0);
  const show = () => {
    const shut = []; // by level, whether a place above is shut
    rows.forEach((row, i) => {
      row.classList.toggle("shut", shut.slice(0, levels[i]).some(Boolean));
      shut.length = levels[i];
      shut[levels[i]] = !open[i];
    });
  };
  rows.forEach((row, i) => {
    row.classList.add(`place-${levels[i]}`);
    const name = row.querySelector("th");
    const label = el("span", {}, clean(FOUND.tree[i].name));
    if (levels[i + 1] > levels[i]) {
      const button = el("button", { type: "button", class: "fold", "aria-expanded": String(open[i]), onclick: () => {
        open[i] = !open[i];
        button.setAttribute("aria-expanded", String(open[i]));
        show();
      } }, label);
      name.replaceChildren(button);
    } else name.replaceChildren(label);
  });
  show();
}

addWaterfalls();
foldTree();
