// The parts of the timeline that need no browser: `node --test tests/timeline/`.

import assert from "node:assert/strict";
import test from "node:test";
import { coloring } from "../../reports/timeline/colors.js";
import { factsOf, nameOf, open } from "../../reports/timeline/data.js";
import * as layout from "../../reports/timeline/layout.js";
import { firstAfter, leap, paintTrack } from "../../reports/timeline/lod.js";
import { amount, duration } from "../../reports/timeline/panels.js";
import * as query from "../../reports/timeline/query.js";
import { build, random, small } from "./build.mjs";

const sample = () => open(build(small()));
const one = (events, kind = "stream") => open(build({ lanes: [{ name: "x", kind, tracks: [events] }] }));

test("columns open as they were written", () => {
  const data = sample();
  assert.equal(data.count, 10);
  assert.deepEqual([data.from, data.to], [0, 1000]);
  assert.equal(nameOf(data, 7), "gemm");
  assert.equal(data.end[7], 400);
  assert.deepEqual(factsOf(data, 7), [{ name: "FLOP", unit: "FLOP", value: 2e9 }, { name: "module", unit: "", value: "h.0.mlp" }]);
  assert.deepEqual(factsOf(data, 8), [], "what is absent is no fact");
  assert.deepEqual(factsOf(data, 0), []);
});

test("what is no timeline, or a damaged one, is a sentence", () => {
  const good = build(small());
  assert.throws(() => open(new ArrayBuffer(4)), /no timeline/);
  assert.throws(() => open(new TextEncoder().encode("PKTL____________").buffer), /cut off/);
  assert.throws(() => open(good.slice(0, good.byteLength - 64)), /do not fit/);
  assert.throws(() => open(build({ ...small(), tracks: [[0, 0, 0, 3]] })), /do not cover/);
  assert.throws(() => open(build({ ...small(), version: 2 })), /another version/);
});

test("every cut of a file is a sentence, never another exception", () => {
  const good = build(small());
  for (let length = 0; length < good.byteLength; length += 37) assert.throws(() => open(good.slice(0, length)), /timeline/i);
});

test("times that are negative, NaN or out of order are drawn without length, in order", () => {
  const data = one([{ start: NaN, duration: 5, name: "a" }, { start: 10, duration: -3, name: "b" }, { start: 4, duration: NaN, name: "c" }, { start: 12, duration: Infinity, name: "d" }, { start: -1e300, duration: 1, name: "e" }]);
  assert.equal(data.mended, 6);
  for (let i = 1; i < data.count; i++) assert.ok(data.start[i] >= data.end[i - 1] && data.end[i] >= data.start[i]);
  assert.ok(Number.isFinite(data.from) && data.to > data.from);
});

test("no events, and one event without length, give a window that is not empty", () => {
  for (const data of [open(build({ lanes: [] })), one([{ start: 7, duration: 0, name: "a" }])]) {
    assert.ok(data.to > data.from);
    assert.ok(Number.isFinite(layout.clampView({ from: NaN, to: 3 }, data).from));
    layout.ticks({ from: data.from, to: data.to }, 800);
  }
});

test("rows stand under each other, and a folded lane keeps one", () => {
  const data = sample(), all = layout.layOut(data), folded = layout.layOut(data, new Set([1]));
  assert.deepEqual(all.rows.map((r) => r.lane), [0, 0, 1, 1, 2]);
  assert.deepEqual(folded.rows.map((r) => r.lane), [0, 0, 1, 2]);
  assert.equal(all.height - folded.height, layout.ROW);
  for (let y = -5; y < all.height + 5; y++) {
    const expected = all.rows.find((r) => r.y <= y && y < r.y + layout.ROW) || null;
    assert.equal(layout.rowAt(all, y), expected, `at ${y}`);
  }
  assert.equal(layout.laneAt(all, 1).name, "steps and passes");
});

test("the time under the pointer stays where it is when zooming", () => {
  const data = sample(), view = { from: 100, to: 900 };
  const closer = layout.zoomed(view, 0.5, 300, data);
  assert.deepEqual(closer, { from: 200, to: 600 });
  assert.equal((300 - closer.from) / (closer.to - closer.from), (300 - 100) / 800);
});

test("the window stays inside the capture and keeps its length when it can", () => {
  const data = sample();
  assert.deepEqual(layout.panned({ from: 0, to: 400 }, -50, data), { from: 0, to: 400 });
  assert.deepEqual(layout.panned({ from: 500, to: 900 }, 1e9, data), { from: 600, to: 1000 });
  assert.deepEqual(layout.zoomed({ from: 0, to: 1000 }, 9, 10, data), { from: 0, to: 1000 });
  const deep = layout.zoomed({ from: 500, to: 520 }, 1e-9, 510, data);
  assert.ok(deep.to - deep.from >= 20 - 1e-6 && deep.from >= 490);
  const around = layout.viewOf(data, 8);
  assert.ok(around.from <= 400 && around.to >= 500);
});

test("ticks are round, inside the window, and not too many", () => {
  const { step, times } = layout.ticks({ from: 3, to: 1003 }, 1100);
  assert.deepEqual([step, times[0], times.length], [100, 100, 10]);
  assert.equal(duration(1500, 100), "1.5 µs");
  assert.equal(duration(0, 1e6), "0 ms");
});

test("an address brings view, event and span back; nonsense in it does no harm", () => {
  const data = sample(), state = { view: { from: 100, to: 300 }, event: 7, span: { from: 120, to: 200 } };
  assert.deepEqual(layout.fromHash(layout.toHash("a b&c", state), "a b&c", data), state);
  assert.equal(layout.fromHash(layout.toHash("other", state), "a", data), null);
  for (const hash of ["#timeline=a", "#timeline=a&from=x&to=NaN&event=1e9&span=9-1", "#timeline=a&from=5&to=5&event=-3.5"]) {
    assert.deepEqual(layout.fromHash(hash, "a", data), { view: { from: 0, to: 1000 }, event: -1, span: null });
  }
});

const busy = (count, seed) => {
  const numbers = random(seed), events = [];
  for (let t = 0; events.length < count;) {
    t += Math.floor(numbers.next().value ** 4 * 400);
    const length = Math.floor(numbers.next().value ** 6 * 900);
    events.push({ start: t, duration: length, name: "e" });
    t += length;
  }
  return one(events);
};

test("searches in time agree with looking at every event", () => {
  const data = busy(500, 3), { end } = data;
  for (let t = -10; t < data.to + 50; t += 173) {
    const expected = end.findIndex((e) => e > t), at = expected < 0 ? data.count : expected;
    assert.equal(firstAfter(end, 0, data.count, t), at);
    for (const low of [0, 1, at >> 1, at]) assert.equal(leap(end, low, data.count, t), Math.max(low, at));
  }
});

test("a pixel is painted exactly where events are, at every zoom", () => {
  const data = busy(3000, 5), width = 400, shade = new Uint8Array(data.count), colors = new Uint32Array(256).fill(7);
  for (const share of [1, 0.31, 0.02, 0.0005]) {
    const length = (data.to - data.from) * share, view = { from: data.from + length * 0.1, to: data.from + length * 1.1 };
    const pixels = new Uint32Array(width + 2), expected = new Uint32Array(width + 2), scale = width / (view.to - view.from);
    paintTrack(data, data.tracks[0], view, width, shade, colors, pixels, 1, 1e9, () => {});
    for (let i = 0; i < data.count; i++) {
      if (data.end[i] <= view.from) continue;
      const begin = (data.start[i] - view.from) * scale;
      if (begin >= width) break;
      const left = Math.max(0, Math.floor(begin)), right = Math.min(width, Math.floor((data.end[i] - view.from) * scale));
      expected.fill(7, 1 + left, 1 + Math.max(left + 1, right));
    }
    const same = pixels.reduce((n, p, k) => n + (p === expected[k] ? 1 : 0), 0);
    assert.equal(same, width + 2, `share ${share}`);
  }
});

test("a million narrow events cost about as many steps as pixels", () => {
  const count = 1_000_000, start = Float64Array.from({ length: count }, (_, i) => 2 * i), end = start.map((s) => s + 1);
  let looks = 0;
  const counted = new Proxy(end, { get: (target, key) => { looks++; return target[key]; } });
  paintTrack({ start, end: counted }, { first: 0, count }, { from: 0, to: 2 * count }, 1000, new Uint8Array(count), new Uint32Array(256).fill(1), new Uint32Array(1000), 0, 1e9, () => {});
  assert.ok(looks < 60 * 1000, `${looks} looks`);
});

test("events wide enough for a name are handed over with their edges", () => {
  const data = sample(), wide = [];
  paintTrack(data, data.tracks[4], { from: 0, to: 1000 }, 1000, new Uint8Array(10), new Uint32Array(256), new Uint32Array(1000), 0, 150, (...hit) => wide.push(hit));
  assert.deepEqual(wide, [[7, 100, 400], [9, 600, 1000]]);
});

test("a click finds the event under it, or one within three pixels", () => {
  const data = sample(), at = layout.layOut(data), row = at.rows[4], view = { from: 0, to: 1000 };
  const hit = (x, y = row.y + 2) => query.hit(data, at, view, 1000, x, y);
  assert.equal(hit(250), 7);
  assert.equal(hit(598), 9);
  assert.equal(hit(502), 8);
  assert.equal(hit(550), -1);
  assert.equal(hit(250, row.y - 3), -1);
  assert.equal(hit(-1), -1);
  assert.equal(hit(1000), -1);
});

test("rows above, below and beside an event", () => {
  const data = sample();
  assert.equal(query.parentOf(data, 5), 2);
  assert.equal(query.parentOf(data, 2), -1);
  assert.equal(query.childOf(data, 2), 4);
  assert.equal(query.childOf(data, 7), -1);
  assert.equal(query.besides(data, 7, 1), 8);
  assert.equal(query.besides(data, 7, -1), -1);
  assert.equal(query.besides(data, 9, 1), -1);
});

test("search takes every word, without regard to case, and counts", () => {
  const data = sample(), found = query.search(data, "  GEMM ");
  assert.deepEqual([found.count, found.time, [...found.matches]], [2, 400, [7, 8]]);
  assert.equal(query.search(data, "aten linear").count, 1);
  assert.equal(query.search(data, "gemm nothing").count, 0);
  assert.equal(query.search(data, "  "), null);
  assert.equal(query.search(data, ".*").count, 0, "no pattern, just text");
});

test("an operator knows what the calls inside it launched", () => {
  const data = sample();
  assert.deepEqual(query.launchedBy(data, 2), { events: [7, 8], count: 2, time: 400 });
  assert.deepEqual(query.launchedBy(data, 6), { events: [9], count: 1, time: 400 });
  assert.equal(query.launchedBy(data, 9).count, 0);
});

test("a span sums kernels by name, and threads without what is nested inside", () => {
  const data = sample(), sums = query.aggregate(data, { from: 0, to: 1000 });
  const of = Object.fromEntries(sums.map((g) => [data.names[g.name], g]));
  assert.deepEqual([of.gemm.count, of.gemm.time], [2, 400]);
  assert.equal(of.gemm.efficiency, (0.5 * 300 + 1 * 100) / 400, "a ratio of sums");
  assert.ok(Number.isNaN(of.gelu.efficiency));
  assert.equal(of["aten::linear"].time, 400 - 150);
  assert.equal(of.launch.time, 160);
  assert.equal(sums[0].kind, "stream");
  assert.equal(of["step 0"], undefined);
});

test("a span cuts what reaches out of it", () => {
  const data = sample(), [gemm] = query.aggregate(data, { from: 350, to: 450 });
  assert.deepEqual([gemm.count, gemm.time], [2, 100]);
  assert.deepEqual(query.busy(data, { from: 350, to: 650 }), [{ lane: 1, time: 150 }, { lane: 2, time: 200 }]);
});

test("colours by family, pass and efficiency; what a search leaves out is faded", () => {
  const data = sample();
  const words = (mode, i) => { const c = coloring(data, mode, null, false); return c.legend[c.shade[i]][0]; };
  assert.deepEqual([words("family", 7), words("family", 9), words("family", 2)], ["matmul", "elementwise", "cpu_op"]);
  assert.deepEqual([words("pass", 9), words("family", 1)], ["forward", "forward"]);
  assert.deepEqual([words("efficiency", 7), words("efficiency", 8)], ["40–70 %", "≥ 70 % of roof"]);
  const faded = coloring(data, "family", query.search(data, "gelu").flags, true);
  assert.ok(faded.shade[7] >= 64 && faded.shade[9] < 64);
  assert.notEqual(faded.colors[faded.shade[7]], 0);
});

test("more families than colours do no harm", () => {
  const families = Array.from({ length: 300 }, (_, i) => `f${i}`);
  const data = open(build({ families, lanes: [{ name: "x", kind: "stream", tracks: [families.map((_, i) => ({ start: i, duration: 1, name: "k", family: i }))] }] }));
  const made = coloring(data, "family", null, false);
  assert.ok(made.shade.every((s) => s < 64 && made.colors[s] !== 0));
});

test("amounts in the unit that fits", () => {
  assert.deepEqual([duration(12), duration(1234), duration(4.56e7), duration(NaN)], ["12 ns", "1.23 µs", "45.60 ms", "–"]);
  assert.deepEqual([amount(2.5e12, "FLOP/s"), amount(512, "B"), amount(83.25, "%"), amount("3 × 1", ""), amount(1234, "")], ["2.50 TFLOP/s", "512 B", "83.3 %", "3 × 1", "1,234"]);
});
