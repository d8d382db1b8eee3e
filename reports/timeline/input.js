// Keys, wheel and pointer of a timeline: they turn into its own verbs (zoom, pan, show, select, …).

import { duration } from "./panels.js";
import { nameOf } from "./data.js";
import { RULER } from "./draw.js";
import { HEAD, laneAt, panned, viewOf } from "./layout.js";
import { firstAfter } from "./lod.js";
import { besides, childOf, hit, parentOf, trackOf } from "./query.js";

const CLICK = 4; // px that a pointer may move in a click

// Listen on the canvas and the minimap of timeline `t`; `on(target, type, run, more)` adds a listener that ends with it.
export function listen(t, on) {
  const input = new Input(t);
  on(t.canvas, "keydown", (e) => input.key(e));
  on(t.canvas, "wheel", (e) => input.wheel(e), { passive: false });
  on(t.canvas, "pointerdown", (e) => input.down(e));
  on(t.canvas, "pointermove", (e) => input.move(e));
  on(t.canvas, "pointerup", (e) => input.up(e));
  on(t.canvas, "pointercancel", () => { input.drag = null; });
  on(t.canvas, "pointerleave", () => input.hover(-1));
  on(t.canvas, "dblclick", () => { if (t.selected >= 0) t.show(viewOf(t.data, t.selected)); });
  on(t.map, "pointerdown", (e) => { t.map.setPointerCapture(e.pointerId); input.mapTo(e); });
  on(t.map, "pointermove", (e) => { if (e.buttons & 1) input.mapTo(e); });
}

class Input {
  constructor(timeline) { this.timeline = timeline; this.drag = null; }

  key(event) {
    const t = this.timeline;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const to = (i) => { if (i >= 0) t.select(i); };
    const chosen = t.selected >= 0;
    const actions = {
      w: () => t.zoom(0.7), s: () => t.zoom(1 / 0.7), a: () => t.pan(-0.15), d: () => t.pan(0.15),
      f: () => (chosen ? t.show(viewOf(t.data, t.selected)) : t.span && t.show(t.span)),
      0: () => t.show(t.data), Home: () => t.show(t.data), "/": () => t.query.focus(),
      n: () => t.nextMatch(1), N: () => t.nextMatch(-1), Escape: () => { t.select(-1); t.say(""); t.panel.replaceChildren(); },
      ArrowRight: () => (chosen ? to(besides(t.data, t.selected, 1)) : t.pan(0.1)),
      ArrowLeft: () => (chosen ? to(besides(t.data, t.selected, -1)) : t.pan(-0.1)),
      ArrowUp: () => (chosen ? to(parentOf(t.data, t.selected)) : t.lanes.scrollBy(0, -40)),
      ArrowDown: () => (chosen ? to(childOf(t.data, t.selected)) : t.lanes.scrollBy(0, 40)),
      m: () => t.selectSpan(chosen ? { from: t.data.start[t.selected], to: t.data.end[t.selected] } : t.view),
      x: () => chosen && t.fold(trackOf(t.data, t.selected).lane),
      Enter: () => { if (!chosen) to(firstShown(t.data, t.layout, t.view)); },
    };
    const action = actions[event.key] || actions[event.key.toLowerCase()];
    if (!action) return;
    event.preventDefault();
    action();
  }

  wheel(event) {
    const t = this.timeline;
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
    if (!sideways && !event.ctrlKey && !event.metaKey && document.activeElement !== t.canvas) return; // the page scrolls
    event.preventDefault();
    if (sideways) t.pan(sideways / t.width);
    else t.zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 300))), t.timeAt(event.offsetX));
  }

  down(event) {
    const t = this.timeline;
    if (event.button !== 0) return;
    t.canvas.setPointerCapture(event.pointerId);
    this.drag = { x: event.offsetX, y: event.offsetY, view: t.view, top: t.lanes.scrollTop, at: t.timeAt(event.offsetX), spanning: event.shiftKey || event.offsetY < RULER, moved: false };
  }

  move(event) {
    const t = this.timeline;
    const drag = this.drag;
    if (!drag) return this.hover(this.eventUnder(event));
    drag.moved ||= Math.hypot(event.offsetX - drag.x, event.offsetY - drag.y) > CLICK;
    if (!drag.moved) return;
    if (drag.spanning) {
      const [from, to] = [drag.at, t.timeAt(event.offsetX)].sort((a, b) => a - b);
      t.span = { from: Math.max(from, t.data.from), to: Math.min(to, t.data.to) };
      return t.request();
    }
    t.view = panned(drag.view, ((drag.x - event.offsetX) / t.width) * (drag.view.to - drag.view.from), t.data);
    t.lanes.scrollTop = drag.top + drag.y - event.offsetY;
    t.touch();
  }

  up(event) {
    const t = this.timeline;
    const drag = this.drag;
    this.drag = null;
    if (!drag) return;
    if (drag.moved) return drag.spanning && t.span.to > t.span.from ? t.selectSpan(t.span) : undefined;
    const y = event.offsetY - RULER + t.lanes.scrollTop, lane = laneAt(t.layout, y);
    if (lane && y < lane.y + HEAD && lane.depth > 1) return t.fold(lane.lane);
    t.select(this.eventUnder(event), false);
  }

  eventUnder(event) {
    const t = this.timeline;
    if (event.offsetY < RULER) return -1;
    return hit(t.data, t.layout, t.view, t.width, event.offsetX, event.offsetY - RULER + t.lanes.scrollTop);
  }

  hover(i) {
    const t = this.timeline;
    if (i === t.hovered) return;
    t.hovered = i;
    t.canvas.title = i < 0 ? "" : `${nameOf(t.data, i).slice(0, 200)}\n${duration(t.data.duration[i])}`;
    t.request();
  }

  mapTo(event) {
    const t = this.timeline;
    const { from, to } = t.data, middle = from + (event.offsetX / t.map.clientWidth) * (to - from);
    t.view = panned(t.view, middle - (t.view.from + t.view.to) / 2, t.data);
    t.touch();
  }
}

// The first event in the window, kernels before threads: where the keyboard starts.
function firstShown(data, layout, view) {
  const rows = [...layout.rows].sort((a, b) => (data.lanes[b.lane].kind === "stream") - (data.lanes[a.lane].kind === "stream"));
  for (const { track } of rows) {
    const last = track.first + track.count, i = firstAfter(data.end, track.first, last, view.from);
    if (i < last && data.start[i] <= view.to) return i;
  }
  return -1;
}
