// What is drawn in a chart: a series is {kind, name, color, …} of one of the kinds below. `draw` gives SVG, `hits` the
// places that the pointer finds: {text, key, series, distance(x, y)} in pixels, 0 inside.

function svg(tag, attributes, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes || {})) if (value !== null && value !== undefined) node.setAttribute(name, value);
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return node;
}

const each = (value, i) => (Array.isArray(value) ? value[i] : value);
const rounded = (value) => Math.round(value * 10) / 10;
const drawableAt = (x, y, s, i) => Number.isFinite(x.at(s.x[i])) && Number.isFinite(y.at(s.y[i]));
const indices = (s, x, y) => s.x.map((_, i) => i).filter((i) => s.x[i] !== null && s.y[i] !== null && drawableAt(x, y, s, i));
const near = (px, py) => (x, y) => Math.hypot(x - px, y - py);

const MARKS = {
  // Vertices x, y joined by a line; `step` for levels that hold until the next, `fill` down to 0, `dots` at the vertices,
  // `low` and `high` for intervals around them. `hover` is the text of a vertex, `whole` that of the line anywhere.
  line: {
    draw(s, x, y) {
      const at = indices(s, x, y), path = pathOf(s, at, x, y);
      const base = y.at(Math.max(y.range[0], 0));
      const fill = s.fill && at.length ? svg("path", { d: `${path}V${rounded(base)}H${rounded(x.at(s.x[at[0]]))}Z`, fill: s.color, opacity: s.fill === true ? 0.22 : s.fill }) : null;
      const line = svg("path", { class: "js-line", d: path, fill: "none", stroke: s.color, "stroke-width": s.width || 2, "stroke-dasharray": s.dash ? "7 5" : null, "stroke-linejoin": "round" });
      return [fill, line, intervals(s, at, x, y), s.dots ? dots(s, at, x, y) : null];
    },
    hits(s, x, y) {
      const at = indices(s, x, y);
      if (s.whole) return at.slice(1).map((i, n) => ({ text: s.whole, series: s, distance: toSegment([at[n], i].map((k) => [x.at(s.x[k]), y.at(s.y[k])])) }));
      return at.filter((i) => s.hover && s.hover[i]).map((i) => ({ text: s.hover[i], series: s, at: s.x[i], distance: near(x.at(s.x[i]), y.at(s.y[i])) }));
    },
  },
  // Points of `size` pixels (one, or of each), or upright strokes where `stroke` is set; `key` names what a click finds.
  points: {
    draw: (s, x, y) => { const at = indices(s, x, y); return [intervals(s, at, x, y), dots(s, at, x, y)]; },
    hits: (s, x, y) => indices(s, x, y).map((i) => ({
      text: s.hover[i], key: s.keys && s.keys[i], series: s,
      distance: (px, py) => Math.max(0, Math.hypot(px - x.at(s.x[i]), py - y.at(s.y[i])) - each(s.size || 7, i) / 2),
    })),
  },
  // Bars from `base` to `value` across the categories of the other axis; `lying` along x.
  bars: {
    draw: (s, x, y) => s.value.map((_, i) => svg("rect", { class: "point", ...boxOf(s, i, x, y), fill: each(s.color, i), stroke: "var(--panel)", "stroke-width": 1 })),
    hits: (s, x, y) => s.value.map((value, i) => ({ text: s.hover[i], series: s, distance: toBox(boxOf(s, i, x, y)) })).filter((hit, i) => s.value[i] !== s.base[i]),
  },
  // A box of the quartiles with the median in row `row`, and every value as a point.
  box: {
    draw(s, x, y) {
      const [low, first, middle, third, high] = [0, 0.25, 0.5, 0.75, 1].map((q) => rounded(x.at(quantile(s.x, q))));
      const at = y.at(s.row), h = Math.min(17, Math.abs(y.at(1) - y.at(0)) * 0.3 || 17);
      const line = (d) => svg("path", { d, fill: "none", stroke: s.color, "stroke-width": 1.5 });
      return [line(`M${low} ${at}H${first}M${third} ${at}H${high}M${first} ${at - h}V${at + h}H${third}V${at - h}ZM${middle} ${at - h}V${at + h}`),
        dots({ ...s, y: s.x.map((_, i) => s.row + jitter(i)), size: 5, opacity: 0.5 }, s.x.map((_, i) => i), x, y)];
    },
    hits: (s, x, y) => s.x.map((value, i) => ({ text: s.hover[i], series: s, distance: near(x.at(value), y.at(s.row + jitter(i))) })),
  },
  // A text at a place, with a halo so that it can be read over points; `anchor` is start or end, `below` its side.
  text: {
    draw: (s, x, y) => svg("text", { x: s.anchor === "end" ? rounded(x.at(s.x)) - 5 : Math.min(rounded(x.at(s.x)) + 5, x.to - s.text.length * 6.2), y: rounded(y.at(s.y)) + (s.below ? 15 : -6), "text-anchor": s.anchor, class: "halo" }, s.text),
    hits: () => [],
  },
};

const jitter = (i) => 0.16 * Math.sin(12.9898 * (i + 1)); // the same at every drawing

function quantile(values, q) {
  const sorted = [...values].sort((a, b) => a - b), place = q * (sorted.length - 1), low = Math.floor(place);
  return sorted[low] + (place - low) * ((sorted[low + 1] ?? sorted[low]) - sorted[low]);
}

function pathOf(s, at, x, y) {
  let path = "";
  for (const i of at) {
    const [px, py] = [rounded(x.at(s.x[i])), rounded(y.at(s.y[i]))];
    path += !path ? `M${px} ${py}` : s.step ? `H${px}V${py}` : `L${px} ${py}`;
  }
  return path;
}

function dots(s, at, x, y) {
  const shape = (i, size) => (s.stroke ? `M0 ${-size / 2}V${size / 2}` : `M${-size / 2} 0a${size / 2} ${size / 2} 0 1 0 ${size} 0a${size / 2} ${size / 2} 0 1 0 ${-size} 0`);
  return svg("g", { class: "points" }, at.map((i) => svg("path", {
    d: shape(i, each(s.size || 7, i)), transform: `translate(${rounded(x.at(s.x[i]))} ${rounded(y.at(s.y[i]))})`,
    fill: s.stroke ? "none" : s.color, stroke: s.stroke ? s.color : "var(--panel)", "stroke-width": s.stroke ? 2.5 : 1, opacity: s.opacity,
  })));
}

function intervals(s, at, x, y) {
  if (!s.low || !s.low.length) return null;
  const d = at.map((i) => {
    const [px, low, high] = [x.at(s.x[i]), y.at(s.low[i]), y.at(s.high[i])].map(rounded);
    return Number.isFinite(low) && Number.isFinite(high) ? `M${px - 3} ${low}H${px + 3}M${px} ${low}V${high}M${px - 3} ${high}H${px + 3}` : "";
  }).join("");
  return svg("path", { d, fill: "none", stroke: s.color, "stroke-width": 1 });
}

function boxOf(s, i, x, y) {
  const [along, across] = s.lying ? [x, y] : [y, x];
  const [a, b] = [along.at(s.base[i]), along.at(s.value[i])], thick = Math.abs(across.at(1) - across.at(0)) * 0.64;
  const [start, length, side] = [Math.min(a, b), Math.abs(b - a), across.at(i) - thick / 2];
  return s.lying ? { x: rounded(start), y: rounded(side), width: rounded(length), height: rounded(thick) }
    : { x: rounded(side), y: rounded(start), width: rounded(thick), height: rounded(length) };
}

const toBox = (b) => (px, py) => Math.hypot(Math.max(b.x - px, 0, px - b.x - b.width), Math.max(b.y - py, 0, py - b.y - b.height));

const toSegment = ([[ax, ay], [bx, by]]) => (px, py) => {
  const square = (bx - ax) ** 2 + (by - ay) ** 2;
  const t = square ? Math.max(0, Math.min(1, ((px - ax) * (bx - ax) + (py - ay) * (by - ay)) / square)) : 0;
  return Math.hypot(px - ax - t * (bx - ax), py - ay - t * (by - ay));
};
