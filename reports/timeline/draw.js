// One frame: rows as pixels, one drawImage each, then words, bands, launches and marks on top.

import { nameOf } from "./data.js";
import { GAP, HEAD, ROW, ticks } from "./layout.js";
import { paintTrack } from "./lod.js";
import { duration } from "./panels.js";
import { trackOf } from "./query.js";

export const RULER = 24; // px, on top of the lanes
const LABEL = 34; // px that an event needs to carry its name
const FONT = '11px system-ui, -apple-system, "Segoe UI", sans-serif';
const LONGEST_LABEL = 160; // characters
const MOST_TIES = 300; // arrows in one picture

export const x = (s, time) => ((time - s.view.from) / (s.view.to - s.view.from)) * s.width;

// A canvas of rows of pixels that is made again only when its size changes.
export class Pixels {
  constructor() { this.canvas = document.createElement("canvas"); this.context = this.canvas.getContext("2d"); }

  sized(width, rows) {
    if (this.image && this.image.width === width && this.image.height >= rows) { this.words.fill(0); return this.words; }
    this.canvas.width = width;
    this.canvas.height = rows;
    this.image = this.context.createImageData(width, rows);
    return (this.words = new Uint32Array(this.image.data.buffer));
  }

  put() { this.context.putImageData(this.image, 0, 0); }
}

// Draw state `s`: data, layout, view, width and height (px), top (scrolled px), ratio (device pixels a px), coloring,
// theme, selected, hovered, links, span.
export function draw(context, s, pixels) {
  context.setTransform(s.ratio, 0, 0, s.ratio, 0, 0);
  context.font = FONT;
  context.textBaseline = "middle";
  context.fillStyle = s.theme.ground;
  context.fillRect(0, 0, s.width, s.height);
  const rows = s.layout.rows.filter((r) => r.y + ROW > s.top && r.y < s.top + s.height - RULER);
  grid(context, s);
  bands(context, s);
  const labels = paintRows(context, s, rows, pixels);
  names(context, s, labels);
  heads(context, s);
  ties(context, s);
  marks(context, s);
  ruler(context, s);
}

const yOf = (s, y) => RULER + y - s.top;

function paintRows(context, s, rows, pixels) {
  const width = Math.max(1, Math.round(s.width * s.ratio)), labels = [];
  if (!rows.length) return labels;
  const words = pixels.sized(width, rows.length);
  rows.forEach((row, at) => paintTrack(s.data, row.track, s.view, width, s.coloring.shade, s.coloring.colors, words, at * width,
    LABEL * s.ratio, (i, left, right) => labels.push([i, row, left / s.ratio, right / s.ratio])));
  pixels.put();
  context.imageSmoothingEnabled = false;
  rows.forEach((row, at) => context.drawImage(pixels.canvas, 0, at, width, 1, 0, yOf(s, row.y) + 1, s.width, ROW - 2));
  return labels;
}

function names(context, s, labels) {
  for (const [i, row, left, right] of labels) {
    const room = right - left - 8;
    const text = fitted(nameOf(s.data, i), room);
    if (!text) continue;
    context.fillStyle = s.coloring.shade[i] >= 64 ? s.theme.muted : "#10161d";
    context.fillText(text, left + 4, yOf(s, row.y) + ROW / 2 + 0.5);
  }
}

const PER_CHARACTER = 6.1; // px on average, so that no text is measured

function fitted(name, room) {
  const fits = Math.min(LONGEST_LABEL, Math.floor(room / PER_CHARACTER));
  return fits < 3 ? "" : name.length <= fits ? name : `${name.slice(0, fits - 1)}…`;
}

function grid(context, s) {
  context.fillStyle = s.theme.line;
  for (const time of ticks(s.view, s.width).times) context.fillRect(Math.round(x(s, time)), RULER, 1, s.height);
}

// Steps as lines and passes as a tint over the lanes below the row that names them.
function bands(context, s) {
  const first = s.data.lanes.findIndex((lane) => lane.kind === "spans"); // of several ranks the first stands for all
  const spans = s.data.tracks.filter((t) => t.lane === first);
  const nothing = new Uint32Array(Math.ceil(s.width) + 1);
  for (const track of spans) {
    paintTrack(s.data, track, s.view, Math.ceil(s.width), s.coloring.shade, s.coloring.colors, nothing, 0, 3, (i, left, right) => {
      const word = s.data.categories[s.data.category[i]];
      if (word === "pass") {
        context.globalAlpha = s.theme.dark ? 0.12 : 0.09;
        context.fillStyle = css(s.coloring.colors[s.coloring.shade[i]]);
        context.fillRect(left, RULER, right - left, s.height);
        context.globalAlpha = 1;
      } else if (s.data.start[i] >= s.view.from) {
        context.fillStyle = s.theme.muted;
        context.fillRect(left, RULER, 1, s.height);
      }
    });
  }
}

const css = (pixel) => `rgb(${pixel & 255} ${(pixel >> 8) & 255} ${(pixel >> 16) & 255})`;

function heads(context, s) {
  for (const lane of s.layout.lanes) {
    const y = yOf(s, lane.y);
    if (y > s.height || y + HEAD < 0) continue;
    context.fillStyle = s.theme.muted;
    const sign = lane.depth > 1 ? (lane.folded ? "▸ " : "▾ ") : "";
    context.fillText(sign + lane.name.slice(0, 120), 5, y + HEAD / 2 + 1);
    context.fillStyle = s.theme.line;
    context.fillRect(0, y - GAP / 2, s.width, 1);
  }
}

// Where an event stands: {left, right, y, middle} in px, or null when its row is folded away.
function boxOf(s, i) {
  const track = trackOf(s.data, i), row = s.layout.rows.find((r) => r.track === track);
  if (!row) return null;
  const left = x(s, s.data.start[i]), right = Math.max(left + 2, x(s, s.data.end[i])), y = yOf(s, row.y);
  return { left, right, y, middle: y + ROW / 2 };
}

function marks(context, s) {
  if (s.span) {
    const left = x(s, s.span.from), right = x(s, s.span.to);
    context.fillStyle = s.theme.accent;
    context.globalAlpha = 0.14;
    context.fillRect(left, RULER, right - left, s.height);
    context.globalAlpha = 1;
    for (const edge of [left, right]) context.fillRect(Math.round(edge) - 0.5, RULER, 1, s.height);
  }
  context.strokeStyle = s.theme.accent;
  for (const [from, to] of s.links) link(context, boxOf(s, from), boxOf(s, to));
  for (const [i, thick] of [[s.hovered, 1], [s.selected, 2]]) {
    const box = i >= 0 && boxOf(s, i);
    if (!box) continue;
    context.strokeStyle = thick > 1 ? s.theme.ink : s.theme.muted;
    context.lineWidth = thick;
    const left = Math.max(-4, box.left), right = Math.min(s.width + 4, box.right);
    context.strokeRect(left, box.y + 0.5, right - left, ROW - 1);
  }
}

// Arrows between ranks: from the late one, at the moment at which it arrives, to each one that waits for it.
function ties(context, s) {
  const { from, to, count } = s.data.ties;
  let shown = 0;
  for (let k = 0; k < count && shown < MOST_TIES; k++) {
    const at = x(s, s.data.start[from[k]]);
    if (at < 0 || at > s.width) continue;
    const late = boxOf(s, from[k]), waiting = boxOf(s, to[k]);
    if (!late || !waiting) continue;
    const chosen = s.selected === from[k] || s.selected === to[k];
    shown++;
    context.globalAlpha = chosen ? 1 : 0.6;
    context.lineWidth = chosen ? 2.5 : 1.2;
    arrow(context, s.theme.ink, at, late.middle, waiting.middle);
  }
  context.globalAlpha = 1;
}

const HEAD_OF_ARROW = 5; // px

function arrow(context, color, x, from, to) {
  const back = to + HEAD_OF_ARROW * Math.sign(from - to);
  context.strokeStyle = context.fillStyle = color;
  context.beginPath();
  context.moveTo(x, from);
  context.lineTo(x, back);
  context.stroke();
  context.beginPath();
  context.moveTo(x, to);
  context.lineTo(x - HEAD_OF_ARROW * 0.7, back);
  context.lineTo(x + HEAD_OF_ARROW * 0.7, back);
  context.fill();
}

function link(context, from, to) {
  if (!from || !to) return;
  const bend = Math.min(60, Math.abs(to.left - from.left) / 2 + 8);
  context.lineWidth = 1.2;
  context.beginPath();
  context.moveTo(from.left, from.middle);
  context.bezierCurveTo(from.left + bend, from.middle, to.left - bend, to.middle, to.left, to.middle);
  context.stroke();
}

function ruler(context, s) {
  context.fillStyle = s.theme.soft;
  context.fillRect(0, 0, s.width, RULER);
  const { step, times } = ticks(s.view, s.width);
  context.fillStyle = s.theme.muted;
  for (const time of times) {
    const at = x(s, time);
    context.fillRect(Math.round(at), RULER - 6, 1, 6);
    context.fillText(duration(time, step), at + 4, RULER / 2);
  }
}

// The whole capture at a glance: the outermost rows, kernels last, and the window over them.
export class Minimap {
  constructor(canvas) { this.canvas = canvas; this.context = canvas.getContext("2d"); this.pixels = new Pixels(); }

  draw(s, width, height) {
    const whole = { ...s, view: { from: s.data.from, to: s.data.to }, width };
    const key = [width, height, s.ratio, s.coloring];
    if (!this.key || key.some((k, i) => k !== this.key[i])) { this.paint(whole, width, height); this.key = key; }
    this.context.setTransform(1, 0, 0, 1, 0, 0);
    this.context.drawImage(this.cached, 0, 0);
    this.context.setTransform(s.ratio, 0, 0, s.ratio, 0, 0);
    const left = x(whole, s.view.from), right = Math.max(left + 2, x(whole, s.view.to));
    this.context.fillStyle = s.theme.ground;
    this.context.globalAlpha = 0.6;
    this.context.fillRect(0, 0, left, height);
    this.context.fillRect(right, 0, width - right, height);
    this.context.globalAlpha = 1;
    this.context.strokeStyle = s.theme.accent;
    this.context.lineWidth = 1.5;
    this.context.strokeRect(left + 0.5, 0.75, Math.max(1, right - left - 1), height - 1.5);
  }

  paint(s, width, height) {
    const device = Math.max(1, Math.round(width * s.ratio));
    this.canvas.width = device;
    this.canvas.height = Math.round(height * s.ratio);
    const tracks = s.data.tracks.filter((t) => t.depth === 0 && s.data.lanes[t.lane].kind !== "spans");
    const shown = tracks.length ? tracks : s.data.tracks.slice(0, 1);
    const words = this.pixels.sized(device, Math.max(1, shown.length));
    shown.forEach((track, at) => paintTrack(s.data, track, s.view, device, s.coloring.shade, s.coloring.colors, words, at * device, Infinity, () => {}));
    this.pixels.put();
    this.cached = document.createElement("canvas");
    this.cached.width = device;
    this.cached.height = this.canvas.height;
    const into = this.cached.getContext("2d");
    into.fillStyle = s.theme.soft;
    into.fillRect(0, 0, device, this.canvas.height);
    into.imageSmoothingEnabled = false;
    into.drawImage(this.pixels.canvas, 0, 0, device, Math.max(1, shown.length), 0, 0, device, this.canvas.height);
  }
}
