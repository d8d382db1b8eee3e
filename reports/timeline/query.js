// What is where: hits, search, sums over a span, what encloses an event and what it launched.

import { rowAt } from "./layout.js";
import { firstAfter } from "./lod.js";

const INSIDE = -1; // slack that admits only an event around the time
const NEAR = 3; // px: how far from an event a click still means it

// The event of a track at a time, or the nearest within `slack` (ns); −1 for none.
export function eventAt(data, track, time, slack) {
  const last = track.first + track.count;
  const i = firstAfter(data.end, track.first, last, time);
  if (i < last && data.start[i] <= time) return i;
  const before = i > track.first ? time - data.end[i - 1] : Infinity;
  const after = i < last ? data.start[i] - time : Infinity;
  if (Math.min(before, after) > slack) return -1;
  return before <= after ? i - 1 : i;
}

// The event at a point of a picture that is `width` px wide; −1 for none.
export function hit(data, layout, view, width, x, y) {
  const row = rowAt(layout, y);
  if (!row || x < 0 || x >= width) return -1;
  const perPixel = (view.to - view.from) / width;
  return eventAt(data, row.track, view.from + x * perPixel, NEAR * perPixel);
}

export function trackOf(data, i) {
  let low = 0, high = data.tracks.length - 1;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (data.tracks[middle].first <= i) low = middle;
    else high = middle - 1;
  }
  return data.tracks[low];
}

export const trackAt = (data, lane, depth) => data.tracks.find((t) => t.lane === lane && t.depth === depth) || null;

// The event around `i` on its lane, one row up; −1 for none.
export function parentOf(data, i) {
  const { lane, depth } = trackOf(data, i);
  const above = trackAt(data, lane, depth - 1);
  return above ? eventAt(data, above, data.start[i], INSIDE) : -1;
}

// The first event inside `i`, one row down; −1 for none.
export function childOf(data, i) {
  const { lane, depth } = trackOf(data, i);
  const below = trackAt(data, lane, depth + 1);
  if (!below) return -1;
  const found = firstAfter(data.end, below.first, below.first + below.count, data.start[i]);
  return found < below.first + below.count && data.start[found] < data.end[i] ? found : -1;
}

// Neighbour of `i` on its track, −1 beyond the ends.
export function besides(data, i, step) {
  const { first, count } = trackOf(data, i), next = i + step;
  return next >= first && next < first + count ? next : -1;
}

// Events whose names hold every word of `text`, without regard to case: {matches (by start), count, time} or null.
export function search(data, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const named = Uint8Array.from(data.names, (name) => { const low = name.toLowerCase(); return words.every((w) => low.includes(w)) ? 1 : 0; });
  const flags = new Uint8Array(data.count);
  let count = 0, time = 0;
  for (let i = 0; i < data.count; i++) if (named[data.name[i]]) { flags[i] = 1; count++; time += data.duration[i]; }
  const matches = new Int32Array(count);
  for (let i = 0, k = 0; k < count; i++) if (flags[i]) matches[k++] = i;
  if (count < 200_000) matches.sort((a, b) => data.start[a] - data.start[b]);
  return { matches, flags, count, time };
}

// What events launched by `i`, or by a call inside it, ran elsewhere; `most` at most are listed. {events, count, time}
export function launchedBy(data, i, most = 300) {
  const { lane, depth } = trackOf(data, i);
  const events = [];
  let count = 0, time = 0;
  const spans = data.tracks.map((t) => (t.lane === lane && t.depth >= depth ? t : null)).filter(Boolean);
  const first = spans.length ? spans[0].first : 0;
  const last = spans.length ? spans.at(-1).first + spans.at(-1).count : 0;
  for (let k = 0; k < data.count; k++) {
    const by = data.launch[k];
    if (by < first || by >= last || data.start[by] < data.start[i] || data.end[by] > data.end[i]) continue;
    count++;
    time += data.duration[k];
    if (events.length < most) events.push(k);
  }
  return { events, count, time };
}

// Sums over a span by name, for threads of time outside what is nested inside, the largest first:
// [{name, category, kind of lane, count, time, efficiency (Σ roof / Σ time, NaN where unknown)}].
export function aggregate(data, span) {
  const groups = new Map();
  const own = new Map(); // event of the lane so far → its group, from which its children's time is taken
  let above = null;
  for (const track of data.tracks) {
    const kind = data.lanes[track.lane].kind;
    if (kind === "spans") continue;
    if (!above || above.lane !== track.lane) own.clear();
    const last = track.first + track.count;
    for (let i = firstAfter(data.end, track.first, last, span.from); i < last && data.start[i] < span.to; i++) {
      const time = Math.min(data.end[i], span.to) - Math.max(data.start[i], span.from);
      const key = data.name[i] * 64 + data.category[i];
      let group = groups.get(key);
      if (!group) groups.set(key, (group = { name: data.name[i], category: data.category[i], kind, count: 0, time: 0, roof: 0, judged: 0 }));
      group.count++;
      group.time += time;
      if (data.efficiency[i] >= 0) { group.roof += data.efficiency[i] * time; group.judged += time; }
      if (above && above.lane === track.lane) {
        const around = own.get(eventAt(data, above, data.start[i], INSIDE));
        if (around) around.time -= time;
      }
      own.set(i, group);
    }
    above = track;
  }
  return [...groups.values()]
    .map((g) => ({ ...g, efficiency: g.judged > 0 ? g.roof / g.judged : NaN }))
    .sort((a, b) => (a.kind === "stream" ? 0 : 1) - (b.kind === "stream" ? 0 : 1) || b.time - a.time);
}

// How much of the span each lane was busy: [{lane, time}], outermost rows only.
export function busy(data, span) {
  return data.tracks.filter((t) => t.depth === 0 && data.lanes[t.lane].kind !== "spans").map((track) => {
    let time = 0;
    const last = track.first + track.count;
    for (let i = firstAfter(data.end, track.first, last, span.from); i < last && data.start[i] < span.to; i++) {
      time += Math.min(data.end[i], span.to) - Math.max(data.start[i], span.from);
    }
    return { lane: track.lane, time };
  });
}
