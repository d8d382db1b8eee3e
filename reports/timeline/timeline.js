// The timeline: `mount(element, data, options)`. Everything worked out lies in layout.js, lod.js and query.js; here is
// the state of one timeline and its elements.

import { coloring, isDark, MODES } from "./colors.js";
import { nameOf, open, unpack } from "./data.js";
import { draw, Minimap, Pixels, RULER } from "./draw.js";
import { listen } from "./input.js";
import { clampView, fromHash, layOut, panned, ROW, toHash, zoomed } from "./layout.js";
import { amount, duration, el, factsPanel, legend, spanPanel } from "./panels.js";
import { launchedBy, search, trackOf } from "./query.js";

export { open, unpack };

const TALLEST = 560; // px of lanes before they scroll
const MAP = 36; // px, the minimap
const FOLD_FROM = 12; // rows from which a lane opens folded when there are several

// Show a timeline in `element`. `data` is what `open` gave, the ArrayBuffer that it takes, or a report's base64 text.
// `options`: `name`, by which an address names this timeline; `hash: false` to leave the address alone; `height`, px.
// → a promise of the Timeline. Damaged data is a sentence in the element, and the promise gives null.
export async function mount(element, data, options = {}) {
  try {
    const buffer = typeof data === "string" ? await unpack(data) : data;
    return new Timeline(element, buffer instanceof ArrayBuffer ? open(buffer) : buffer, options);
  } catch (error) {
    element.replaceChildren(el("p", { class: "tl-error", role: "alert" }, error instanceof Error ? error.message : "The timeline cannot be shown."));
    return null;
  }
}

class Timeline {
  constructor(element, data, options) {
    this.data = data;
    this.name = options.name ?? data.name;
    this.options = options;
    this.view = { from: data.from, to: data.to };
    this.selected = this.hovered = -1;
    this.span = this.found = null;
    this.links = [];
    this.mode = "family";
    this.folded = new Set(deepLanes(data));
    this.layout = layOut(data, this.folded);
    this.frames = 0;
    this.build(element);
    this.recolor();
    this.follow(element);
    if (!this.readHash()) this.touch(false);
  }

  build(element) {
    this.map = el("canvas", { class: "tl-map", role: "img", "aria-label": "The whole capture; drag to move the window" });
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": `Timeline of ${this.name.slice(0, 80)}: W and S zoom, A and D pan, arrow keys move the selection` });
    this.spacer = el("div");
    this.lanes = el("div", { class: "tl-lanes" }, this.canvas, this.spacer);
    this.query = el("input", { type: "search", placeholder: "Search names", "aria-label": "Search names", oninput: () => this.search(this.query.value), onkeydown: (e) => this.searchKey(e) });
    this.status = el("span", { class: "tl-status", role: "status" });
    this.colorBy = el("select", { "aria-label": "Colour by", onchange: () => { this.mode = this.colorBy.value; this.recolor(); } }, MODES.map(([value, text]) => el("option", { value }, `colour by ${text}`)));
    this.legend = el("div", { class: "tl-legend" });
    this.panel = el("div", { class: "tl-panel", "aria-live": "polite" });
    const button = (text, label, action) => el("button", { type: "button", "aria-label": label, title: label, onclick: action }, text);
    const bar = el("div", { class: "tl-bar" }, this.query, this.status, this.colorBy, button("−", "Zoom out", () => this.zoom(2)), button("+", "Zoom in", () => this.zoom(0.5)), button("All", "Show everything", () => this.show(this.data)));
    const keys = ["W", "S", "zoom", "A", "D", "pan", "F", "fit the selection", "M", "sum up", "/", "search", "0", "show all"].map((k) => (k.length < 2 ? el("kbd", {}, k) : `${k} · `));
    const hint = el("p", { class: "tl-hint" }, ...keys.flatMap((k) => [k, " "]), "wheel zooms once the timeline has focus (Ctrl + wheel always) · drag pans · Shift + drag sums up a span · arrows move the selection");
    const notes = [...this.data.notes, this.data.mended ? `${this.data.mended} times were damaged and are drawn without length` : ""].filter(Boolean);
    this.root = el("div", { class: "timeline" }, bar, this.map, this.lanes, this.legend, hint, notes.map((n) => el("p", { class: "tl-hint tl-note" }, n)), this.panel);
    element.replaceChildren(this.root);
    this.context = this.canvas.getContext("2d");
    this.pixels = new Pixels();
    this.minimap = new Minimap(this.map);
  }

  // Listen to everything that changes the picture. `destroy` ends it.
  follow(element) {
    const ending = new AbortController(), on = (target, type, run, more = {}) => target.addEventListener(type, run, { signal: ending.signal, ...more });
    listen(this, on);
    on(this.lanes, "scroll", () => this.request());
    on(window, "hashchange", () => this.readHash());
    on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.recolor());
    const size = new ResizeObserver(() => this.request());
    size.observe(element);
    const theme = new MutationObserver(() => this.recolor());
    theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class", "style"] });
    this.destroy = () => { ending.abort(); size.disconnect(); theme.disconnect(); this.root.remove(); };
  }

  // A frame is drawn at most once a screen refresh, however many changes ask for it.
  request() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => { this.asked = false; this.frame(); });
  }

  frame() {
    const width = this.lanes.clientWidth;
    if (!width) return; // in a hidden tab; the observer of sizes asks again
    const whole = this.layout.height + RULER + 8, height = Math.min(this.options.height ?? TALLEST, whole);
    const ratio = window.devicePixelRatio || 1;
    this.lanes.style.height = `${height}px`;
    this.spacer.style.height = `${Math.max(0, whole - height)}px`;
    if (this.canvas.width !== Math.round(width * ratio) || this.canvas.height !== Math.round(height * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
    }
    this.width = width;
    const state = { data: this.data, layout: this.layout, view: this.view, width, height, ratio, top: this.lanes.scrollTop, coloring: this.coloring, theme: this.theme, selected: this.selected, hovered: this.hovered, links: this.links, span: this.span };
    draw(this.context, state, this.pixels);
    this.minimap.draw(state, this.map.clientWidth, MAP);
    this.frames++;
  }

  recolor() {
    const style = getComputedStyle(this.root), dark = isDark(this.root), probe = el("i");
    this.root.append(probe); // resolves light-dark() and var() to a colour
    this.theme = { dark };
    for (const name of ["ground", "ink", "muted", "line", "soft", "accent"]) {
      probe.style.color = `var(--tl-${name})`;
      this.theme[name] = getComputedStyle(probe).color || style.color;
    }
    probe.remove();
    this.coloring = coloring(this.data, this.mode, this.found && this.found.flags, dark);
    this.legend.replaceChildren(...legend(this.coloring));
    this.request();
  }

  show({ from, to }) { this.view = clampView({ from, to }, this.data); this.touch(); }

  zoom(factor, at = (this.view.from + this.view.to) / 2) { this.view = zoomed(this.view, factor, at, this.data); this.touch(); }

  pan(share) { this.view = panned(this.view, share * (this.view.to - this.view.from), this.data); this.touch(); }

  // The view or the selection changed: draw, and after a while write the address.
  touch(remember = true) {
    this.request();
    if (!remember || this.options.hash === false) return;
    clearTimeout(this.later);
    this.later = setTimeout(() => {
      this.written = toHash(this.name, { view: this.view, event: this.selected, span: this.span });
      history.replaceState(null, "", this.written);
    }, 250);
  }

  readHash() {
    const wanted = this.options.hash === false || location.hash === this.written ? null : fromHash(location.hash, this.name, this.data);
    if (!wanted) return false;
    if (wanted.event >= 0) this.select(wanted.event, false);
    if (wanted.span) this.selectSpan(wanted.span);
    this.show(wanted.view);
    return true;
  }

  // Select event `i` (−1: none) and bring it into the window.
  select(i, reveal = true) {
    this.selected = i;
    this.span = null;
    const launched = i >= 0 ? launchedBy(this.data, i) : null;
    this.links = i < 0 ? [] : this.data.launch[i] >= 0 ? [[this.data.launch[i], i]] : launched.events.map((k) => [this.data.launch[k], k]);
    this.panel.replaceChildren(...(i >= 0 ? [factsPanel(this.data, i, (j) => this.select(j))] : []));
    if (i >= 0) {
      this.say(`${shortened(nameOf(this.data, i))}, ${duration(this.data.duration[i])}`);
      if (reveal) this.reveal(i);
    }
    this.touch();
  }

  reveal(i) {
    const { start, end } = this.data, { from, to } = this.view, lane = trackOf(this.data, i).lane;
    if (this.folded.has(lane) && trackOf(this.data, i).depth > 0) this.fold(lane);
    if (end[i] < from || start[i] > to) this.view = panned(this.view, (start[i] + end[i]) / 2 - (from + to) / 2, this.data);
    const row = this.layout.rows.find((r) => r.track === trackOf(this.data, i));
    const top = this.lanes.scrollTop, room = this.lanes.clientHeight - RULER;
    if (row && (row.y < top || row.y + ROW > top + room)) this.lanes.scrollTop = Math.max(0, row.y - room / 2);
  }

  selectSpan(span) {
    this.selected = -1;
    this.links = [];
    this.span = clampView(span, this.data);
    this.panel.replaceChildren(spanPanel(this.data, this.span, (name) => this.find(name)));
    this.say(`span of ${duration(this.span.to - this.span.from)}`);
    this.touch();
  }

  fold(lane) {
    if (!this.folded.delete(lane)) this.folded.add(lane);
    this.layout = layOut(this.data, this.folded);
    this.request();
  }

  search(text) {
    this.found = search(this.data, text);
    this.say(this.found ? `${amount(this.found.count, "")} found, ${duration(this.found.time)}` : "");
    this.recolor();
  }

  find(name) {
    this.query.value = name;
    this.search(name);
  }

  searchKey(event) {
    if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
    if (event.key === "Escape") this.canvas.focus();
  }

  nextMatch(step) {
    const matches = this.found ? this.found.matches : [];
    if (!matches.length) return;
    const at = matches.indexOf(this.selected);
    const next = at < 0 ? (step > 0 ? 0 : matches.length - 1) : (at + step + matches.length) % matches.length;
    this.select(matches[next]);
    this.say(`${next + 1} of ${amount(matches.length, "")} found`);
  }

  say(text) { this.status.textContent = text; }

  timeAt(px) { return this.view.from + (px / this.width) * (this.view.to - this.view.from); }
}

const shortened = (name) => (name.length > 60 ? `${name.slice(0, 59)}…` : name);

// Deep threads (Python stacks) open folded where other lanes would be pushed out of sight.
function deepLanes(data) {
  const depths = data.lanes.map((_, lane) => data.tracks.filter((t) => t.lane === lane).length);
  return depths.flatMap((depth, lane) => (depth >= FOLD_FROM && depths.length > 2 ? [lane] : []));
}
