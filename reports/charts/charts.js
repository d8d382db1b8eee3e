// Charts as SVG in the page's own colours. `chart(node, make)` draws what `make()` gives, {series, x, y, legend, together,
// onpick}, and again when the node's size changes; colours are CSS, so light and dark need no new drawing.
// A pointer over a mark shows its text, dragging a rectangle zooms, a double click shows all, the legend hides a series.

const REACH = 14; // pixels from a mark at which the pointer finds it
const TEXT_HEIGHT = 17;
const ROW = 0.4; // of the width, at most, for the names of categories
const shownCharts = new Map(); // node → its state
let chartsMade = 0;

const resized = new ResizeObserver((entries) => {
  for (const { target } of entries) drawChart(target);
});

function chart(node, make) {
  const before = shownCharts.get(node);
  shownCharts.set(node, { make, hidden: before ? before.hidden : new Set(), zoom: null, id: before ? before.id : ++chartsMade });
  node.classList.add("plot");
  if (before) drawChart(node);
  else resized.observe(node);
  return node;
}

// Charts that are in the page no more.
function forgetCharts() {
  for (const node of shownCharts.keys()) if (!node.isConnected) { resized.unobserve(node); shownCharts.delete(node); }
}

function drawChart(node) {
  const state = shownCharts.get(node);
  if (!state || !node.clientWidth) return;
  const made = state.make();
  const series = made.series.filter((s) => !state.hidden.has(s.name));
  node.shows = made; // for a browser's console, and tests
  const keys = legend(node, state, made);
  node.replaceChildren(keys || "");
  const size = { width: node.clientWidth, height: Math.max(80, node.clientHeight - (keys ? keys.offsetHeight + 6 : 0)) };
  const plot = plotOf(made, series, state, size);
  const drawing = svg("svg", { width: size.width, height: size.height, "aria-hidden": "true" }, frame(plot, state), ...marks(plot, series, state));
  node.prepend(drawing);
  listen(node, drawing, plot, series, state, made);
}

// The axes, and the area between them.
function plotOf(made, series, state, { width, height }) {
  const values = (pick) => series.flatMap(pick).filter((v) => v !== null);
  const all = {
    x: values((s) => (s.kind === "bars" ? (s.lying ? [...s.base, ...s.value] : []) : [s.x].flat())),
    y: values((s) => (s.kind === "bars" ? (s.lying ? [] : [...s.base, ...s.value]) : s.kind === "box" ? [] : [s.y, s.low || [], s.high || []].flat())),
  };
  const zoomed = (name) => ({ ...made[name], ...(state.zoom ? { range: state.zoom[name] } : {}) });
  const bottom = height - TEXT_HEIGHT * (made.x.title ? 2.3 : 1.2) - (made.x.tilted ? 3 * TEXT_HEIGHT : 0);
  const upright = [bottom, 10], y = axisOf(zoomed("y"), all.y, made.y.categories ? [10, bottom] : upright);
  const named = ticksOf(y, true).map(([, text]) => text.length * LETTER);
  const left = Math.min(width * ROW, Math.max(8, ...named)) + 10 + (made.y.title ? TEXT_HEIGHT : 0);
  const x = axisOf(zoomed("x"), all.x, [left, Math.max(left + 20, width - 14)]);
  return { x, y, left, right: x.to, top: 10, bottom, width, height };
}

function frame({ x, y, left, right, top, bottom }, state) {
  const line = (d) => svg("path", { d, class: "gridline" });
  const across = ticksOf(x, false).map(([v, text]) => {
    const px = rounded(x.at(v));
    const tilt = x.tilted ? { transform: `rotate(-35 ${px} ${bottom + 14})`, "text-anchor": "end" } : { "text-anchor": "middle" };
    return svg("g", { class: "xtick" }, x.categories ? null : line(`M${px} ${top}V${bottom}`), svg("text", { x: px, y: bottom + 14, ...tilt }, text));
  });
  const most = Math.floor((left - (y.title ? TEXT_HEIGHT : 0) - 9.5) / LETTER);
  const up = ticksOf(y, true).map(([v, text]) => {
    const py = rounded(y.at(v));
    return svg("g", { class: "ytick" }, y.categories ? null : line(`M${left} ${py}H${right}`), svg("text", { x: left - 7, y: py + 4, "text-anchor": "end" }, clean(text, Math.max(6, most))));
  });
  const base = !y.categories && !y.log && y.range[0] <= 0 && y.range[1] >= 0 ? svg("path", { d: `M${left} ${rounded(y.at(0))}H${right}`, class: "baseline" }) : null;
  return [
    svg("clipPath", { id: `plot-${state.id}` }, svg("rect", { x: left, y: top - 4, width: right - left + 4, height: bottom - top + 4 })), across, up, base,
    x.title ? svg("text", { class: "xtitle", x: (left + right) / 2, y: bottom + 14 + TEXT_HEIGHT + (x.tilted ? 3 * TEXT_HEIGHT : 0), "text-anchor": "middle" }, x.title) : null,
    y.title ? svg("text", { class: "ytitle", transform: `translate(12 ${(top + bottom) / 2}) rotate(-90)`, "text-anchor": "middle" }, y.title) : null,
    svg("rect", { class: "area", x: left, y: top, width: right - left, height: Math.max(0, bottom - top) }),
  ];
}

const LAYERS = { bars: "barlayer", box: "boxlayer", line: "scatterlayer", points: "scatterlayer", text: "textlayer" };

function marks({ x, y }, series, state) {
  return [...new Set(Object.values(LAYERS))].map((layer) => {
    const inside = series.filter((s) => LAYERS[s.kind] === layer);
    return inside.length ? svg("g", { class: layer, "clip-path": `url(#plot-${state.id})` }, inside.map((s) => svg("g", { class: "trace" }, MARKS[s.kind].draw(s, x, y)))) : null;
  }).filter(Boolean);
}

// A button a series, which hides and shows it.
function legend(node, state, made) {
  const named = made.series.filter((s) => s.name && s.kind !== "text");
  if (!made.legend || !named.length) return null;
  const toggle = (s) => () => { state.hidden[state.hidden.has(s.name) ? "delete" : "add"](s.name); drawChart(node); };
  return el("div", { class: "legend" }, named.map((s) => el("button", { type: "button", "aria-pressed": String(!state.hidden.has(s.name)), onclick: toggle(s) },
    el("span", { class: s.kind === "line" && !s.dots ? "stroke" : s.stroke ? "upright" : "dot", style: { background: each(s.color, 0) } }), el("span", { class: "legendtext" }, s.name))));
}

function listen(node, drawing, plot, series, state, made) {
  const hits = series.flatMap((s) => MARKS[s.kind].hits(s, plot.x, plot.y));
  const layer = el("div", { class: "hoverlayer" });
  const box = svg("rect", { class: "zoombox", visibility: "hidden" });
  drawing.append(box);
  node.append(layer);
  let start = null, end = null;
  const place = (event) => { const at = drawing.getBoundingClientRect(); return [event.clientX - at.x, event.clientY - at.y]; };
  const found = ([px, py]) => nearest(hits, px, py);
  drawing.addEventListener("pointermove", (event) => {
    end = place(event);
    if (start && Math.hypot(end[0] - start[0], end[1] - start[1]) > 5) return showBox(box, plot, start, end);
    const hit = found(end);
    showTip(layer, hit, hit && made.together ? hits.filter((h) => h.at === hit.at) : [hit], end, plot);
    drawing.style.cursor = hit && hit.key && made.onpick ? "pointer" : "";
  });
  drawing.addEventListener("pointerleave", () => layer.replaceChildren());
  drawing.addEventListener("pointerdown", (event) => { if (event.button === 0) { start = end = place(event); drawing.setPointerCapture(event.pointerId); } });
  drawing.addEventListener("pointerup", (event) => {
    const from = start;
    start = null;
    if (!from) return;
    end = place(event);
    const hit = Math.hypot(end[0] - from[0], end[1] - from[1]) <= 5 ? found(from) : null;
    if (hit && hit.key && made.onpick) return made.onpick(hit.key);
    if (box.getAttribute("visibility") === "visible") zoomTo(node, state, plot, from, end);
  });
  drawing.addEventListener("dblclick", () => {
    const whole = (name) => rangeOf({ ...made[name], range: null }, valuesOf(series, name));
    state.zoom = state.zoom ? null : made.x.range || made.y.range ? { x: whole("x"), y: whole("y") } : null;
    drawChart(node);
  });
}

const valuesOf = (series, name) => series.filter((s) => s.kind === "points" || s.kind === "line" && !s.whole).flatMap((s) => s[name]);

function nearest(hits, px, py) {
  let best = null, least = REACH;
  for (const hit of hits) {
    const distance = hit.distance(px, py);
    // Of marks on top of each other the last one drawn.
    if (distance <= least) [best, least] = [hit, distance];
  }
  return best;
}

function showTip(layer, hit, all, [px, py], plot) {
  if (!hit) return layer.replaceChildren();
  const lines = (h) => [h.text].flat().filter(Boolean);
  const tip = el("div", { class: "hovertext" }, all.map((h) => el("div", {}, lines(h).map((text, i, of) => el(of.length > 1 && !i ? "strong" : "span", {}, text)))));
  layer.replaceChildren(tip);
  const left = px > plot.width / 2;
  Object.assign(tip.style, { left: left ? "" : `${px + 14}px`, right: left ? `${plot.width - px + 14}px` : "", top: `${Math.max(0, Math.min(py - 10, plot.height - tip.offsetHeight))}px` });
}

// Along an axis of categories there is no zoom: the rectangle goes from end to end.
function boxSides(plot, from, to) {
  const side = (axis, a, b, low, high) => (axis.categories ? [low, high] : [Math.max(low, Math.min(a, b)), Math.min(high, Math.max(a, b))]);
  return { x: side(plot.x, from[0], to[0], plot.left, plot.right), y: side(plot.y, from[1], to[1], plot.top, plot.bottom) };
}

function showBox(box, plot, from, to) {
  const { x, y } = boxSides(plot, from, to);
  for (const [name, value] of Object.entries({ x: x[0], y: y[0], width: Math.max(0, x[1] - x[0]), height: Math.max(0, y[1] - y[0]), visibility: "visible" })) box.setAttribute(name, value);
}

function zoomTo(node, state, plot, from, to) {
  const { x, y } = boxSides(plot, from, to);
  if (x[1] - x[0] < 4 || y[1] - y[0] < 4) return drawChart(node);
  const range = (axis, sides) => (axis.categories ? axis.range : sides.map(axis.inverse).sort((a, b) => a - b));
  state.zoom = { x: range(plot.x, x), y: range(plot.y, y) };
  drawChart(node);
}
