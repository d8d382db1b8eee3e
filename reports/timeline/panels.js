// What stands in words beside the picture. Every text of a trace becomes a text node: nothing in it can become markup.

import { categoryOf, factsOf, nameOf } from "./data.js";
import { aggregate, busy, launchedBy, trackOf } from "./query.js";

export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""));
  return node;
}

// The profiler's words for kinds of events, as people say them.
const KINDS = { cpu_op: "operator", user_annotation: "range", runtime: "runtime call", python_function: "Python function", gpu_kernel: "kernel", memcpy: "copy", memset: "fill" };
const kindOf = (word) => (Object.hasOwn(KINDS, word) ? KINDS[word] : word);

const LADDER = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];
const TIMES = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
const digits = (value) => (Math.abs(value) >= 100 ? 1 : 2);

// ns as text in the unit that fits; with `step` (ns between ticks) with as many digits as tell ticks apart.
export function duration(ns, step) {
  if (!Number.isFinite(ns)) return "–";
  const [factor, unit] = TIMES.find(([f]) => Math.max(Math.abs(ns), step ?? 0) >= f) || TIMES.at(-1);
  const places = step ? Math.max(0, Math.min(6, Math.ceil(-Math.log10(step / factor) - 1e-9))) : factor === 1 ? 0 : digits(ns / factor);
  return `${(ns / factor).toFixed(places)} ${unit}`;
}

export function amount(value, unit) {
  if (typeof value !== "number") return String(value);
  if (unit === "ns") return duration(value);
  if (unit === "%") return `${value.toFixed(1)} %`;
  if (unit === "" || unit === "FLOP/B") return `${Number.isInteger(value) ? value.toLocaleString("en-US") : value.toPrecision(4)}${unit && ` ${unit}`}`;
  const [factor, prefix] = LADDER.find(([f]) => Math.abs(value) >= f) || [1, ""];
  return `${(value / factor).toFixed(factor === 1 ? 0 : digits(value / factor))} ${prefix}${unit}`;
}

const percent = (share) => (Number.isFinite(share) ? `${(100 * share).toFixed(1)} %` : "–");

// Which group of origins ("time: counter, flop: model") tells where a fact is from.
const GROUPS = [[/^FLOP$/, "flop"], [/^bytes$/, "bytes"], [/^DRAM/, "dram"], [/^L2/, "l2"], [/^L1/, "l1"], [/^tensor/, "tensor"], [/^instructions/, "instructions"]];
const WORKED_OUT = /^(FLOP\/|bytes\/s|% of roof|roof time|headroom)/;

function originOf(name, origins) {
  if (WORKED_OUT.test(name)) return "worked out";
  const group = GROUPS.find(([pattern]) => pattern.test(name));
  return group ? origins[group[1]] || "" : "";
}

const originsIn = (text) => Object.fromEntries((text || "").split(", ").map((part) => part.split(": ")));

// Everything known of event `i`; `choose(j)` selects another event.
export function factsPanel(data, i, choose) {
  const facts = factsOf(data, i), byName = Object.fromEntries(facts.map((f) => [f.name, f.value]));
  const origins = originsIn(byName.origin);
  const lane = data.lanes[trackOf(data, i).lane].name;
  const known = facts.filter((f) => f.name !== "origin" && !(f.name === "short name" && f.value === nameOf(data, i)));
  const rows = known.map((f) => ({ group: groupOf(f.name), cells: [f.name, shown(f, byName), originOf(f.name, origins)] }));
  const times = [["start", duration(data.start[i] - data.from), origins.time || "counter"], ["duration", duration(data.duration[i]), origins.time || "counter"]];
  const cells = { "Time and work": times, Place: [["kind", kindOf(categoryOf(data, i)), ""], ["lane", lane, ""]], Launch: [] };
  for (const { group, cells: row } of rows) cells[group].push(row);
  return el("div", { class: "tl-facts" }, el("h3", {}, nameOf(data, i)), launchLines(data, i, choose), tieLines(data, i, choose),
    el("div", { class: "tl-groups" }, Object.entries(cells).filter(([, group]) => group.length).map(([title, group]) => factTable(title, group))));
}

const PLACE = new Set(["pass", "module", "operator", "line", "range", "placed by", "short name", "family", "shapes", "order", "step", "layer", "device", "stream"]);
const LAUNCH = new Set(["grid", "block", "registers per thread", "shared memory", "occupancy", "waves"]);
const groupOf = (name) => (PLACE.has(name) ? "Place" : LAUNCH.has(name) ? "Launch" : "Time and work");

const factTable = (title, rows) => el("table", {},
  el("thead", {}, el("tr", {}, [title, "", rows.some(([, , origin]) => origin) ? "origin" : ""].map((h) => el("th", { scope: "col" }, h)))),
  el("tbody", {}, rows.map(([name, value, origin]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, value), el("td", { class: "tl-origin" }, origin)))));

function shown({ name, unit, value }, all) {
  const text = amount(value, unit);
  return name === "% of roof" && all["bound by"] ? `${text} of the ${all["bound by"]} roof` : text;
}

function launchLines(data, i, choose) {
  const jump = (j, text) => el("button", { type: "button", class: "tl-jump", onclick: () => choose(j) }, text);
  if (data.launch[i] >= 0) return el("p", {}, "launched by ", jump(data.launch[i], nameOf(data, data.launch[i]).slice(0, 80)), ` ${duration(data.start[i] - data.start[data.launch[i]])} before`);
  const launched = launchedBy(data, i);
  if (!launched.count) return null;
  return el("p", {}, `launched ${launched.count.toLocaleString("en-US")} on the GPU, ${duration(launched.time)}: `, jump(launched.events[0], "show the first"));
}

// Which rank waits for which in the collective that `i` is.
function tieLines(data, i, choose) {
  const { from, to, count } = data.ties, waiting = [];
  let late = -1;
  for (let k = 0; k < count; k++) {
    if (to[k] === i) late = from[k];
    if (from[k] === i) waiting.push(to[k]);
  }
  const jump = (j) => el("button", { type: "button", class: "tl-jump", onclick: () => choose(j) }, data.lanes[trackOf(data, j).lane].name);
  if (late >= 0) return el("p", {}, "waits for ", jump(late), `, which arrives ${duration(data.start[late] - data.start[i])} later`);
  if (!waiting.length) return null;
  return el("p", {}, "the last to arrive; waiting for it: ", waiting.slice(0, 8).flatMap((j) => [jump(j), " "]), waiting.length > 8 ? `and ${waiting.length - 8} more` : null);
}

const FIRST = 100;

// A table of what lies in a span, by name; `find(name)` searches for one.
export function spanPanel(data, span, find) {
  const groups = aggregate(data, span), length = span.to - span.from;
  const body = groups.slice(0, FIRST).map((g) => el("tr", {},
    el("th", { scope: "row", title: data.names[g.name].slice(0, 1000) }, el("button", { type: "button", class: "tl-jump", onclick: () => find(data.names[g.name]) }, data.names[g.name])), el("td", {}, kindOf(data.categories[g.category])),
    [g.count.toLocaleString("en-US"), duration(g.time), percent(g.time / length), percent(g.efficiency)].map((t) => el("td", { class: "tl-right" }, t))));
  const lanes = busy(data, span).filter((b) => b.time > 0).map((b) => `${data.lanes[b.lane].name} ${percent(b.time / length)}`);
  return el("div", { class: "tl-facts" }, el("h3", {}, `Span of ${duration(length)}`),
    el("p", {}, `${groups.reduce((n, g) => n + g.count, 0).toLocaleString("en-US")} events. Busy: ${lanes.join(", ") || "nothing"}. Threads count time outside what is nested inside.`),
    el("table", { class: "tl-sums" }, el("thead", {}, el("tr", {}, ["Name", "Kind", "Count", "Time", "Of the span", "Efficiency"].map((h) => el("th", { scope: "col" }, h)))), el("tbody", {}, body)),
    groups.length > FIRST ? el("p", {}, `and ${groups.length - FIRST} more names`) : null);
}

export const legend = (coloring) => coloring.legend.slice(0, 24).map(([word, color]) => {
  const swatch = el("i", { "aria-hidden": "true" });
  swatch.style.background = color;
  return el("span", {}, swatch, kindOf(word));
});
