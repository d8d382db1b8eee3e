// One backend's step: its accounting, passes and kernel types.

const GAP_COLORS = ["#ee9a2e", "#c7a424", "#8a5fd3", "#4db3e6", "#dd5795", "#16a394", "#a8744c", "#63ad47"];

function accountingCard(backend) {
  const a = backend.accounting;
  if (!a) return backend.coverage || backend.trace_checks.length ? el("section", { class: "card span-5" }, coverage(backend), traceChecks(backend)) : null;
  const parts = [{ name: "kernels", time: a.kernel_ns, color: "var(--accent)", text: "at work" }];
  a.gaps.forEach((gap, i) => parts.push({ name: gap.cause, time: gap.time_ns, color: GAP_COLORS[i % GAP_COLORS.length], text: gap.text }));
  parts.push({ name: "other", time: a.other_ns, color: "var(--muted)", text: "no cause found" });
  const widest = Math.max(a.profiled_step_ns, known(a.timed_step_ns) ? a.timed_step_ns : 0);
  const scale = columnScale(parts.map((p) => p.time), "ns");
  const strip = el("div", { class: "strip", style: { width: `${(100 * a.profiled_step_ns) / widest}%` } }, parts.map((p) =>
    el("span", { title: `${clean(p.name)}: ${amount(p.time, "ns")}`, style: { flexGrow: String(Math.max(0, p.time)), background: p.color } })));
  const timed = known(a.timed_step_ns)
    ? [el("div", { class: "striplabel" }, "timed step, no profiler", el("strong", {}, amount(a.timed_step_ns, "ns"))),
       el("div", { class: "strip timed", style: { width: `${(100 * a.timed_step_ns) / widest}%` } }, el("span", { style: { flexGrow: "1" } }))]
    : [];
  const list = plainTable([
    { head: `Part of the ${backend.per}`, first: true, cell: (p) => [el("span", { class: "dot", style: { background: p.color } }), clean(p.name, 60), el("span", { class: "minor" }, clean(p.text ? ` ${p.text}` : "", 120))] },
    { head: "Time", unit: scale.suffix, right: true, cell: (p) => number(p.time, scale) },
    { head: "Share", right: true, cell: (p) => percent(p.time / a.profiled_step_ns) },
  ], parts);
  const overhead = known(a.profiler_overhead) ? `The profiler made the step ${percent(Math.abs(a.profiler_overhead))} ${a.profiler_overhead < 0 ? "shorter" : "longer"}.` : "";
  const profiled = `profiled ${backend.per}`;
  return card(`Accounting of the ${backend.per}`, `kernels and gaps add up to the ${profiled}`, "span-5",
    el("div", { class: "striplabel" }, profiled, el("strong", {}, amount(a.profiled_step_ns, "ns"))), strip, ...timed,
    el("div", { class: "scroll" }, list), el("p", { class: "note" }, overhead), coverage(backend), traceChecks(backend));
}

// How many checks of the profile hold; each on its own when opened.
function traceChecks(backend) {
  const checks = backend.trace_checks, of = checks.filter((c) => c.holds !== null), held = of.filter((c) => c.holds);
  if (!of.length) return null;
  const sign = (c) => (c.holds === null ? el("span", { class: "minor" }, "–") : el("span", { class: c.holds ? "tone-good" : "tone-bad" }, c.holds ? "✓" : "✗"));
  return el("details", { class: "tracechecks", open: held.length < of.length },
    el("summary", {}, `Trace checks: ${held.length} of ${of.length} hold`),
    el("ul", { class: "plain" }, checks.map((c) => el("li", {}, sign(c), ` ${clean(c.says, 120)}`,
      el("span", { class: "minor" }, c.holds === null ? " does not apply" : c.sentence ? `: ${clean(c.sentence, 400)}` : "")))));
}

// How much of the kernel time is known, and to what extent.
function coverage(backend) {
  const c = backend.coverage;
  if (!c) return null;
  const parts = [["in a pass", c.pass_], ["in a module", c.module], ["with FLOP", c.flop], ["with bytes", c.bytes], ["with counters", c.counters]];
  const told = backend.kind === "run" ? parts : parts.filter(([, share]) => share > 0);
  const names = c.uncosted.slice(0, 5).map((n) => clean(n, 60)).join(", ");
  const more = c.uncosted.length > 5 ? ` and ${c.uncosted.length - 5} more` : "";
  return el("div", { class: "coverage" }, el("h2", {}, "Coverage", told.length ? el("small", {}, " share of the kernel time that is…") : null),
    el("div", { class: "covers" }, told.map(([name, share]) => [el("span", {}, name), bar(share, percent(share))])),
    el("p", { class: "note" }, clean(c.text, 600), names ? ` Without a cost: ${names}${more}.` : "", ` ${clean(c.not_judged, 600)}`));
}

function card(title, small, className, ...children) {
  return el("section", { class: `card ${className}` }, el("h2", {}, title, small ? el("small", {}, ` ${small}`) : null), ...children);
}

function groupsCard(backend) {
  if (!backend.families.length) return null;
  const total = backend.tree ? backend.tree.total : null;
  const tables = { pass: () => groupsTable("Pass", "pass", backend.passes, total), family: () => groupsTable("Type", "family", backend.families, total) };
  const both = backend.passes.length > 0;
  const box = el("div", {}, both ? tables.pass() : tables.family());
  const controls = both ? el("div", { class: "controls" },
    choice("Group by", [["pass", "By pass"], ["family", "By kernel type"]], "pass", (by) => box.replaceChildren(tables[by]()))) : null;
  return card(both ? `Parts of the ${backend.per}` : "Kernel types", backend.per === "step" ? "every measure, per step" : "every measure", "span-12", controls, box);
}

// Passes or kernel types, each with every measure of a group.
function groupsTable(header, kind, groups, total) {
  const rows = total ? [...groups, { ...total, key: "all", all: true }] : groups;
  const column = (head, unitName, pick, knownNs = (g) => g.time_ns) => {
    const scale = columnScale(rows.map(pick), unitName);
    const cell = (g) => number(pick(g), scale, inPart(knownNs(g), g.time_ns));
    return { head, unit: scale.suffix, right: true, empty: !rows.some((g) => known(pick(g))), cell };
  };
  const largest = Math.max(...groups.map((g) => g.time_ns));
  const times = columnScale(rows.map((g) => g.time_ns), "ns");
  return el("div", { class: "scroll" }, plainTable([
    { head: header, first: true, cell: (g) => el("span", { class: "label" }, g.all ? null : dot(g.key, kind), clean(g.key, 60)) },
    { head: "Time", unit: times.suffix, class: "timecell", cell: (g) => (g.all ? bar(0, number(g.time_ns, times), "hollow") : bar(g.time_ns / largest, number(g.time_ns, times), "", colorOf(g.key, kind))) },
    { head: "Share", right: true, cell: (g) => percent(g.share) },
    column("Work", "FLOP", (g) => g.flop, (g) => g.flop_known_ns),
    column("Rate", "FLOP/s", (g) => g.flop_rate),
    column("Moved", "B", (g) => g.bytes, (g) => g.bytes_known_ns),
    column("Bandwidth", "B/s", (g) => g.bandwidth),
    { head: "Efficiency", class: "effcell", empty: !rows.some((g) => known(g.efficiency)), cell: efficiencyBar },
    column("Headroom", "ns", (g) => g.headroom_ns),
  ].filter((c) => !c.empty), rows, (g) => (g.all ? "total" : null)));
}
