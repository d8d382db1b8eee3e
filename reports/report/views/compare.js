// What concerns all backends: verdict, table, stacked bars, step times.

const faulty = (backend) => backend.status === "wrong" || backend.status === "failed";

const STATUS = {
  ok: ["✓", "correct", "good"], wrong: ["✗", "wrong", "bad"], failed: ["✗", "failed", "bad"], unavailable: ["–", "not here", "unknown"],
};

function statusPill(backend) {
  const unchecked = backend.status === "ok" && !backend.correctness;
  const [sign, word, className] = unchecked ? ["?", "not checked", "unknown"] : STATUS[backend.status] || ["✗", clean(backend.status, 20), "bad"];
  return el("span", { class: `pill ${className}` }, `${sign} ${word}`);
}

const PARAGRAPH = 1500; // characters of a headline's line: several sentences, each of which crops its names

function showVerdict(report) {
  const [first, ...others] = report.verdict;
  const bad = report.backends.some(faulty);
  byId("verdict").className = `verdict ${bad ? "bad" : "good"}`;
  if (first) byId("verdict").append(el("p", { class: "lead" }, clean(first, PARAGRAPH)));
  if (others.length) byId("verdict").append(el("ul", {}, others.map((s) => el("li", {}, clean(s, PARAGRAPH)))));
  if (!report.verdict.length) byId("verdict").hidden = true;
}

// Whether this is the report of a run; else it is of one profile, which was neither checked nor timed.
const isRun = (report) => report.settings !== null || report.backends.some((b) => b.kind === "run") || !report.backends.length;

function showBackends(report) {
  if (!isRun(report)) return hideForProfile();
  const own = Boolean(report.workload && report.workload.program);
  if (own) byId("backends-title").textContent = "Program";
  const rows = report.backends;
  const steps = scaleFor(rows.flatMap((b) => (b.step ? [b.step.low, b.step.high] : [])), "ns");
  const longest = Math.max(...rows.map((b) => (b.step ? b.step.high : 0)));
  const column = (head, unitName, pick) => {
    const scale = columnScale(rows.map(pick), unitName);
    return { head, unit: scale.suffix === "%" ? "" : scale.suffix, right: true, cell: (b) => (scale.suffix === "%" ? percent(pick(b)) : number(pick(b), scale)) };
  };
  const sample = report.workload ? clean(report.workload.sample_name, 30) : "samples";
  const columns = [
    { head: own ? "Process" : "Backend", first: true, cell: (b) => [el("span", { class: "backend-name" }, clean(b.name, 80)), statusPill(b), b.timed || !report.settings || b.status === "unavailable" ? null : el("span", { class: "pill unknown" }, "reference only")] },
    { head: "Step, median", unit: steps.suffix, class: "stepcell", cell: (b) => stepBar(b, steps, longest) },
    { head: "95 % interval", right: true, cell: (b) => interval(b.step, steps) },
    { head: "Speed-up", right: true, cell: speedup },
    column(`${sample}/s`, "", (b) => b.samples_per_second),
    column("Memory", "iB", (b) => b.peak_memory_bytes),
    ...(rows.some((b) => b.power) ? [column("Power", "W", (b) => (b.power ? b.power.watts : null)), column("Energy", "J", (b) => b.energy_j)] : []),
    column("MFU", "%", (b) => b.mfu),
    { head: "Efficiency", class: "effcell", cell: (b) => efficiencyBar(b) },
    column("Headroom", "ns", (b) => b.headroom_ns),
    column("Prepare", "ns", (b) => b.prepare_ns),
  ];
  byId("backends").append(plainTable(columns, rows, (b) => (faulty(b) ? "faulty" : null)));
  const reasons = rows.filter((b) => b.reason);
  byId("backends").append(...reasons.map((b) => el("p", { class: "reason" }, el("strong", {}, `${clean(b.name, 80)}: `), clean(b.reason, 600))));
  const held = rows.filter((b) => b.held);
  byId("backends").append(...held.map((b) => el("p", { class: "note" }, `${clean(b.name, 80)}: ${clean(b.held, 600)}`)));
  const named = rows.find((b) => known(b.mfu) && b.mfu_ceiling);
  if (named) byId("backends").append(el("p", { class: "note" }, `MFU: hand-worked model FLOP over step time and ${clean(named.mfu_ceiling)}.`));
}

// Fewer than five steps have only their range, a single one has nothing.
function interval(step, scale) {
  if (!step || step.samples === 1) return ABSENT;
  const span = `${number(step.low, scale)} – ${number(step.high, scale)}`;
  return step.samples < 5 ? `${span} (range of ${step.samples})` : span;
}

// The median as a bar from 0, with the interval as a whisker.
function stepBar(backend, scale, longest) {
  if (!backend.step) return ABSENT;
  const at = (value) => `${(100 * value) / longest}%`;
  const { value, low, high } = backend.step;
  const whisker = el("span", { class: "whisker", style: { left: at(low), width: `${(100 * (high - low)) / longest}%` } });
  return el("span", { class: "bar step" },
    el("span", { class: "track" }, el("span", { class: "fill", style: { width: at(value) } }), whisker),
    el("span", { class: "figure" }, number(value, scale)));
}

function speedup(backend) {
  if (faulty(backend)) return el("span", { class: "tone-bad" }, "none");
  if (!backend.speedup) return ABSENT;
  return el("strong", {}, `${backend.speedup.value.toFixed(2)}×`); // of this run: a verdict takes launches
}

function hideForProfile() {
  byId("backends-card").hidden = byId("samples-card").hidden = true;
  byId("where-card").className = "card span-12";
}

const barName = (backend) => `${faulty(backend) ? "✗ " : ""}${plotText(backend.name, 26)}`;

function showWhere(report) {
  const shown = report.backends.filter((b) => b.families.length);
  const passes = shown.some((b) => b.passes.length);
  const chosen = { by: passes ? "pass" : "family", as: "time" };
  const per = shown.length ? shown[0].per : "step";
  byId("where-small").textContent = per === "step" ? "kernel time of one step" : `kernel time of the ${per}`;
  const node = byId("where");
  byId("where-card").hidden = !shown.length && !isRun(report);
  if (!shown.length) return node.append(el("p", { class: "note" }, "No kernel times were captured."));
  node.style.height = `${96 + 52 * shown.length}px`;
  const draw = () => chart(node, () => stacked(shown, chosen));
  byId("where-controls").append(
    passes ? choice("Stack by", [["pass", "By pass"], ["family", "By kernel type"]], "pass", (v) => { chosen.by = v; draw(); }) : "",
    choice("Show as", [["time", "Time"], ["share", "Share"]], "time", (v) => { chosen.as = v; draw(); }));
  draw();
}

function stacked(backends, { by, as }) {
  const parts = (b) => (by === "pass" ? b.passes : b.families);
  const names = [...new Set(backends.flatMap((b) => parts(b).map((g) => g.key)))];
  const scale = scaleFor(backends.flatMap((b) => (b.accounting ? [b.accounting.kernel_ns] : parts(b).map((g) => g.time_ns))), "ns");
  const group = (b, name) => parts(b).find((g) => g.key === name);
  const value = (g) => (!g ? 0 : as === "share" ? 100 * g.share : g.time_ns / scale.factor);
  const y = backends.map(barName);
  const data = names.map((name) => ({
    type: "bar", orientation: "h", name: plotText(name, 30), y, x: backends.map((b) => value(group(b, name))),
    marker: { color: colorOf(name, by), line: { width: 1, color: cssColor("--panel") } },
    hoverinfo: "text", hovertext: backends.map((b) => partText(b, group(b, name), name)), textposition: "none",
  }));
  if (as === "time" && backends.some((b) => b.step)) data.push(timedSteps(backends, scale, y));
  return {
    data, layout: {
      barmode: "stack", bargap: 0.38, legend: { orientation: "h", traceorder: "normal", x: 0, y: -0.28 / backends.length - 0.12, yanchor: "top" },
      xaxis: { title: { text: as === "share" ? "share of kernel time, %" : scale.suffix, standoff: 4 }, rangemode: "tozero" },
      yaxis: { autorange: "reversed", ticksuffix: "  ", tickfont: { size: 13.5, color: cssColor("--ink") } },
    },
  };
}

function partText(backend, g, name) {
  if (!g) return "";
  return lines(`<b>${plotText(name, 60)}</b>, ${plotText(backend.name, 60)}`, `${amount(g.time_ns, "ns")}, ${percent(g.share)} of kernel time`,
    `efficiency ${percent(g.efficiency)}, headroom ${amount(g.headroom_ns, "ns")}`);
}

function timedSteps(backends, scale, y) {
  return {
    type: "scatter", mode: "markers", name: "timed step", y, x: backends.map((b) => (b.step ? b.step.value / scale.factor : null)),
    marker: { symbol: "line-ns-open", size: 26, line: { width: 2.5, color: cssColor("--ink") }, color: cssColor("--ink") },
    hoverinfo: "text", hovertext: backends.map((b) => (b.step ? lines(`<b>timed step</b>, ${plotText(b.name, 60)}`, amount(b.step.value, "ns")) : "")),
  };
}

function showSamples(report) {
  const shown = report.backends.filter((b) => b.samples_ns.length);
  const node = byId("samples");
  if (!shown.length) return node.append(el("p", { class: "note" }, "No step was timed."));
  const scale = scaleFor(shown.flatMap((b) => b.samples_ns), "ns");
  node.style.height = `${Math.max(200, 130 + 52 * shown.length)}px`;
  chart(node, () => ({
    data: shown.map((b) => samplesTrace(b, scale)),
    layout: {
      showlegend: false, xaxis: { title: { text: scale.suffix, standoff: 4 } },
      yaxis: { autorange: "reversed", ticksuffix: "  ", tickfont: { size: 13, color: cssColor("--ink") } },
    },
  }));
}

function samplesTrace(backend, scale) {
  const color = cssColor(faulty(backend) ? "--bad" : "--accent");
  return {
    type: "box", orientation: "h", name: barName(backend), x: backend.samples_ns.map((v) => v / scale.factor), boxpoints: "all", jitter: 0.5,
    pointpos: 0, fillcolor: "rgba(0,0,0,0)", line: { color, width: 1.5 }, marker: { color, size: 5, opacity: 0.45 },
    hoveron: "points", hoverinfo: "text", text: backend.samples_ns.map((v, i) => `step ${i + 1}: ${amount(v, "ns")}`),
  };
}
