// The roofline: each kind of kernel call as a point under the measured ceilings.

function rooflineCard(backend, roofs, pick) {
  const points = backend.points.filter((p) => p.intensity > 0 && p.flop_rate > 0);
  if (!points.length) return null;
  const chosen = { by: "family", size: "time", roofs: new Set(usedRoofs(points, roofs)) };
  const node = el("div", { class: "chart roofline", role: "img", "aria-label": "Roofline: FLOP/s over FLOP per byte, with the measured ceilings" });
  const draw = () => chart(node, () => ({ ...rooflineFigure(points, roofs, chosen), onpick: pick }));
  draw();
  const controls = el("div", { class: "controls" },
    choice("Colour by", [["family", "By kernel type"], ["pass", "By pass"]], "family", (v) => { chosen.by = v; draw(); }),
    choice("Size", [["time", "Area = time"], ["same", "Same size"]], "time", (v) => { chosen.size = v; draw(); }));
  const note = el("p", { class: "note" }, rooflineNote(backend, points, roofs));
  return card("Roofline", "how far each kernel is from what this device can do", "span-7", controls, roofToggles(roofs, chosen, draw), node, note);
}

// A unit that sets less than a hundredth of the time would only add a line.
function usedRoofs(points, roofs) {
  const time = (chosen) => chosen.reduce((sum, p) => sum + p.time_ns, 0);
  const matters = (r) => time(points.filter((p) => p.resource === r.resource)) >= time(points) / 100;
  return roofs.filter((r) => r.kind === "bandwidth" || matters(r));
}

function roofToggles(roofs, chosen, draw) {
  if (!roofs.length) return null;
  const toggle = (roof, shown) => { chosen.roofs[shown ? "add" : "delete"](roof); draw(); };
  return el("fieldset", { class: "checks" }, el("legend", {}, "Roofs"), roofs.map((roof) =>
    el("label", {}, el("input", { type: "checkbox", checked: chosen.roofs.has(roof), onchange: (e) => toggle(roof, e.target.checked) }), clean(roof.label, 60), el("span", { class: "minor" }, rateText(roof)))));
}

function rooflineNote(backend, points, roofs) {
  const range = rooflineRange(points, roofs);
  const outside = points.filter((p) => p.intensity < range.x[0] || p.flop_rate < range.y[0]).length;
  const off = backend.kernels.length - points.length;
  return ["A click on a point finds its kernel in the table; a click in the legend hides a group.",
    outside ? `${outside} of the smallest lie outside: a double click shows them.` : "",
    off > 0 ? `${off} of ${backend.kernels.length} kernels do no arithmetic, or none that is known, or are too small to judge, and have no place here.` : ""].filter(Boolean).join(" ");
}

function rooflineFigure(points, roofs, { by, size, roofs: shown }) {
  const longest = Math.max(...points.map((p) => p.time_ns));
  const nameOf = (p) => (by === "family" ? p.family || "other" : p.pass_.includes(", ") ? "several passes" : p.pass_ || "unknown");
  const total = (name) => points.filter((p) => nameOf(p) === name).reduce((sum, p) => sum + p.time_ns, 0);
  const names = [...new Set(points.map(nameOf))].sort((a, b) => total(b) - total(a));
  const range = rooflineRange(points, roofs);
  const kept = roofs.filter((r) => shown.has(r));
  const groups = names.map((name) => {
    const mine = points.filter((p) => nameOf(p) === name).sort((a, b) => b.time_ns - a.time_ns);
    return {
      kind: "points", name: clean(name, 30), x: mine.map((p) => p.intensity), y: mine.map((p) => p.flop_rate), keys: mine.map((p) => p.label),
      hover: mine.map(pointText), color: colorOf(name, by), opacity: 0.78,
      size: mine.map((p) => (size === "time" ? Math.max(7, 46 * Math.sqrt(p.time_ns / longest)) : 11)),
    };
  });
  return {
    series: [...kept.map((r) => roofLine(r, roofs, range)), ...groups, ...roofLabels(kept, roofs, range)], legend: true,
    x: { log: true, range: range.x, title: "intensity, FLOP/byte" }, y: { log: true, range: range.y, title: "FLOP/s" },
  };
}

// The view holds every point of at least a thousandth of the time, but at most four decades left of the ridge and five
// below the top: outliers would squeeze all others into a corner.
function rooflineRange(points, roofs) {
  const total = points.reduce((sum, p) => sum + p.time_ns, 0);
  const seen = points.filter((p) => p.time_ns >= total / 1000);
  const compute = rates(roofs, "compute"), bandwidth = rates(roofs, "bandwidth");
  const xs = seen.map((p) => p.intensity), ys = seen.map((p) => p.flop_rate);
  const ridge = compute.length && bandwidth.length ? Math.max(...compute) / Math.min(...bandwidth) : Math.max(...xs);
  const top = Math.max(...compute, ...ys) * 2.5;
  return { x: [Math.max(Math.min(...xs) / 8, ridge / 1e4), Math.max(ridge, ...xs) * 6], y: [Math.max(Math.min(...ys) / 4, top / 1e5), top] };
}

const rates = (roofs, kind) => roofs.filter((r) => r.kind === kind).map((r) => r.value);

// A bandwidth rises to the highest rate; a rate starts where the highest bandwidth reaches it.
function roofSpan(roof, roofs, range) {
  const outer = { low: range.x[0] / 1e6, high: range.x[1] * 1e3 };
  if (roof.kind === "bandwidth") {
    const top = Math.max(...rates(roofs, "compute"), 0);
    const x = [outer.low, top ? top / roof.value : outer.high];
    return { x, y: x.map((v) => v * roof.value) };
  }
  const fastest = Math.max(...rates(roofs, "bandwidth"), 0);
  return { x: [fastest ? roof.value / fastest : outer.low, outer.high], y: [roof.value, roof.value] };
}

const rateText = (roof) => amount(roof.value, roof.kind === "bandwidth" ? "B/s" : "FLOP/s");
const roofText = (roof) => `${clean(roof.label, 60)}  ${rateText(roof)}`;

function roofLine(roof, roofs, range) {
  return { kind: "line", ...roofSpan(roof, roofs, range), whole: roofText(roof), color: "var(--roof)", width: 1.8, dash: roof.kind !== "bandwidth" };
}

// Labels are drawn over the points, and only where there is room: on the fastest and the slowest bandwidth, and on rates
// that keep a line of text between them. The others are named above the chart and under the pointer.
function roofLabels(kept, roofs, range) {
  const textLine = Math.log10(range.y[1] / range.y[0]) * 0.055; // decades
  const falling = (kind) => kept.filter((r) => r.kind === kind).sort((a, b) => b.value - a.value);
  const slopes = falling("bandwidth"), slowest = slopes.at(-1);
  const top = Math.max(...rates(roofs, "compute"), range.y[0] * 10) / 10 ** (2 * textLine);
  const labels = slopes.length > 1 ? [roofLabel(slopes[0], top / slopes[0].value, top, "top left")] : [];
  if (slowest) {
    const low = Math.max(range.x[0], range.y[0] / slowest.value), high = Math.min(roofSpan(slowest, roofs, range).x[1], range.x[1]);
    const x = low * (high / low) ** 0.2;
    labels.push(roofLabel(slowest, x, x * slowest.value, "bottom right"));
  }
  let last = Infinity;
  for (const roof of falling("compute")) {
    if (Math.log10(last / roof.value) < textLine) continue;
    last = roof.value;
    labels.push(roofLabel(roof, Math.max(roofSpan(roof, roofs, range).x[0], range.x[0]) * 1.1, roof.value, "top right"));
  }
  return labels;
}

function roofLabel(roof, x, y, position) {
  return { kind: "text", x, y, text: roofText(roof), anchor: position.includes("left") ? "end" : "start", below: position.includes("bottom") };
}

function pointText(p) {
  return [clean(p.label, 90), `${clean(p.family, 40)}, ${clean(p.pass_, 40)}`,
    `${amount(p.time_ns, "ns")} a step in ${amount(p.count, "count")} calls`,
    `${amount(p.flop_rate, "FLOP/s")} at ${amount(p.intensity, "FLOP/B")}`,
    known(p.efficiency) ? `${percent(p.efficiency)} of ${clean(p.ceiling, 80)}` : "no ceiling known"];
}
