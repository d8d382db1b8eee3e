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

const barName = (backend) => `${faulty(backend) ? "✗ " : ""}${clean(backend.name, 26)}`;

function showWhere(report) {
  const shown = report.backends.filter((b) => b.families.length);
  const passes = shown.some((b) => b.passes.length);
  const chosen = { by: passes ? "pass" : "family", as: "time" };
  const per = shown.length ? shown[0].per : "step";
  byId("where-small").textContent = per === "step" ? "kernel time of one step" : `kernel time of the ${per}`;
  const node = byId("where");
  byId("where-card").hidden = !shown.length && !isRun(report);
  if (!shown.length) return node.append(el("p", { class: "note" }, "No kernel times were captured."));
  node.style.height = `${100 + 52 * shown.length}px`;
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
  const ends = backends.map(() => 0);
  const series = names.map((name) => {
    const base = [...ends];
    backends.forEach((b, i) => { ends[i] += value(group(b, name)); });
    return { kind: "bars", lying: true, name: clean(name, 30), base, value: [...ends], color: colorOf(name, by), hover: backends.map((b) => partText(b, group(b, name), name)) };
  });
  if (as === "time" && backends.some((b) => b.step)) series.push(timedSteps(backends, scale));
  const x = { title: as === "share" ? "share of kernel time, %" : scale.suffix, zero: true, ...(as === "share" ? { range: [0, 100] } : {}) };
  return { series, x, y: { categories: backends.map(barName) }, legend: true };
}

function partText(backend, g, name) {
  if (!g) return "";
  return [`${clean(name, 60)}, ${clean(backend.name, 60)}`, `${amount(g.time_ns, "ns")}, ${percent(g.share)} of kernel time`,
    `efficiency ${percent(g.efficiency)}, headroom ${amount(g.headroom_ns, "ns")}`];
}

function timedSteps(backends, scale) {
  return {
    kind: "points", name: "timed step", stroke: true, size: 26, color: "var(--ink)", x: backends.map((b) => (b.step ? b.step.value / scale.factor : null)),
    y: backends.map((_, i) => i), hover: backends.map((b) => (b.step ? [`timed step, ${clean(b.name, 60)}`, amount(b.step.value, "ns")] : "")),
  };
}

function showSamples(report) {
  const shown = report.backends.filter((b) => b.samples_ns.length);
  const node = byId("samples");
  if (!shown.length) return node.append(el("p", { class: "note" }, "No step was timed."));
  const scale = scaleFor(shown.flatMap((b) => b.samples_ns), "ns");
  node.style.height = `${Math.max(200, 130 + 52 * shown.length)}px`;
  chart(node, () => ({ series: shown.map((b, row) => samplesBox(b, row, scale)), x: { title: scale.suffix }, y: { categories: shown.map(barName) } }));
}

function samplesBox(backend, row, scale) {
  return {
    kind: "box", name: clean(backend.name, 30), row, color: faulty(backend) ? "var(--bad)" : "var(--accent)",
    x: backend.samples_ns.map((v) => v / scale.factor), hover: backend.samples_ns.map((v, i) => `step ${i + 1}: ${amount(v, "ns")}`),
  };
}
