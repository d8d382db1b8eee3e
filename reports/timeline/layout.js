// Where things stand: rows of lanes down the page, the window in time across it, ticks, and the address of a view.

export const ROW = 18; // px
export const GAP = 8; // between lanes
export const HEAD = 18; // the line with a lane's name

// A row a track; a folded lane keeps its outermost row. → {lanes: [{lane, y, height}], rows: [{track, lane, y}], height}
export function layOut(data, folded = new Set()) {
  const lanes = [], rows = [];
  let y = 0;
  data.lanes.forEach((described, lane) => {
    const tracks = data.tracks.filter((t) => t.lane === lane);
    if (!tracks.length) return;
    const shown = folded.has(lane) ? tracks.slice(0, 1) : tracks;
    const top = y;
    y += HEAD;
    for (const track of shown) { rows.push({ track, lane, y }); y += ROW; }
    lanes.push({ lane, name: described.name, kind: described.kind, y: top, height: y - top, folded: folded.has(lane), depth: tracks.length });
    y += GAP;
  });
  return { lanes, rows, height: Math.max(0, y - GAP) };
}

// The row at a height, or null between rows.
export function rowAt(layout, y) {
  let low = 0, high = layout.rows.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (layout.rows[middle].y + ROW <= y) low = middle + 1;
    else high = middle;
  }
  const row = layout.rows[low];
  return row && row.y <= y ? row : null;
}

export const laneAt = (layout, y) => layout.lanes.find((l) => y >= l.y && y < l.y + l.height) || null;

const SHORTEST = 20; // ns that the window shows at least

// A window {from, to} inside the data, no shorter than SHORTEST; its length is kept where it can be.
export function clampView({ from, to }, data) {
  const whole = data.to - data.from, middle = (from + to) / 2;
  if (!Number.isFinite(middle)) return { from: data.from, to: data.to };
  const length = Math.min(whole, Math.max(Math.min(SHORTEST, whole), to - from));
  const start = Math.min(Math.max(to - from === length ? from : middle - length / 2, data.from), data.to - length);
  return { from: start, to: start + length };
}

// Zoom by `factor` (below 1: closer) with the time `at` staying where it is on the screen.
export const zoomed = (view, factor, at, data) =>
  clampView({ from: at - (at - view.from) * factor, to: at + (view.to - at) * factor }, data);

export const panned = (view, by, data) => clampView({ from: view.from + by, to: view.to + by }, data);

// The window that shows event `i` on a third of its width.
export function viewOf(data, i) {
  const length = Math.max(SHORTEST, data.duration[i]);
  return clampView({ from: data.start[i] - length, to: data.start[i] + 2 * length }, data);
}

// Round times inside the window, about one every 110 px.
export function ticks(view, width) {
  const rough = ((view.to - view.from) * 110) / Math.max(width, 1);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= rough) || rough;
  const found = [];
  for (let t = Math.ceil(view.from / step) * step; t <= view.to && found.length < 200; t += step) found.push(t);
  return { step, times: found };
}

// A view as the part of an address after #, and back. What is missing or no number is left out.
export function toHash(name, { view, event, span }) {
  const parts = new URLSearchParams({ timeline: name, from: String(Math.round(view.from)), to: String(Math.round(view.to)) });
  if (event >= 0) parts.set("event", String(event));
  if (span) parts.set("span", `${Math.round(span.from)}-${Math.round(span.to)}`);
  return `#${parts}`;
}

export function fromHash(hash, name, data) {
  const parts = new URLSearchParams(hash.replace(/^#/, ""));
  if (parts.get("timeline") !== name) return null;
  const from = Number.parseFloat(parts.get("from")), to = Number.parseFloat(parts.get("to"));
  const event = Number(parts.get("event") ?? -1);
  const [a, b] = (parts.get("span") || "").split("-").map(Number.parseFloat);
  return {
    view: to > from ? clampView({ from, to }, data) : { from: data.from, to: data.to },
    event: Number.isInteger(event) && event >= 0 && event < data.count ? event : -1,
    span: b > a ? clampView({ from: a, to: b }, data) : null,
  };
}
