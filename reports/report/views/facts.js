// Heading, ceilings, environment, warnings, command: what was run, where, and how.

function showHeading(report) {
  const { settings: s, workload: w } = report;
  document.title = `${clean(report.title, 120)} · perfkit`;
  byId("title").textContent = clean(report.title, 300);
  byId("made").textContent = ` ${clean(report.perfkit, 40)}${report.created ? ` · ${clean(report.created.replace("T", " ").replace(/(\.\d+)?(\+00:00|Z)$/, " UTC"), 60)}` : ""}`;
  const chips = [];
  if (s) {
    chips.push(s.workload === s.preset ? s.workload : `${s.workload} ${s.preset}`, s.variant, s.training ? "training" : "inference", s.dtype, s.device);
    chips.push(`batch ${s.batch_size}${s.sequence_length ? ` × ${s.sequence_length} ${w ? w.sample_name : ""}` : ""}`);
    if (s.grad_accumulation > 1) chips.push(`${s.grad_accumulation} × gradient accumulation`);
    if (s.recompute) chips.push("recompute");
    if (w) chips.push(`${amount(w.parameters, "")} parameters`);
    if (s.data) chips.push(`data: ${(w && w.data_source) || s.data}`);
  } else chips.push(report.source);
  byId("settings").append(...chips.filter(Boolean).map((c) => el("span", { class: "chip" }, clean(c, 120))));
  const warnings = allWarnings(report);
  if (warnings.length) byId("settings").append(el("a", { class: "chip warn", href: "#warnings" }, `${warnings.length} warning${warnings.length > 1 ? "s" : ""}`));
}

function allWarnings(report) {
  const own = report.backends.flatMap((b) => b.warnings.filter((w) => !report.warnings.includes(w)).map((w) => `${b.name}: ${w}`));
  return [...new Set([...report.warnings, ...own])];
}

function showFacts(report) {
  const warnings = allWarnings(report);
  byId("warnings").append(...(warnings.length ? warnings : ["None."]).map((w) => el("li", {}, clean(w, 600))));
  const command = clean(report.command.map((w) => (/^[\w@%+=:,./-]+$/.test(w) ? w : `'${w.replaceAll("'", "'\\''")}'`)).join(" "), 2000);
  byId("command-title").hidden = !command;
  byId("command").append(...(command ? [el("pre", {}, command)] : []), el("p", { class: "note" }, `Read from ${clean(report.source, 400)}`));
  if (report.workload) byId("command").append(...report.workload.notes.map((n) => el("p", { class: "note" }, clean(n, 600))));
  byId("environment-card").hidden = !Object.keys(report.environment).length;
  if (byId("environment-card").hidden) byId("environment-card").previousElementSibling.className = "card span-12";
  if (!isRun(report)) document.querySelectorAll("[data-run]").forEach((node) => node.remove());
  byId("environment").append(plainTable([{ head: "Fact", first: true, cell: (f) => clean(f[0], 120) }, { head: "Value", cell: (f) => clean(f[1], 400) }], flat("", report.environment)));
  showCeilings(report);
}

function showCeilings(report) {
  const box = byId("ceilings");
  if (!report.roofs.length) return box.append(el("p", { class: "note" }, "Unknown: no efficiency can be given."));
  const rate = (r, value) => amount(value, r.kind === "bandwidth" ? "B/s" : "FLOP/s");
  const when = report.ceilings_are.split(", ").at(-1);
  byId("ceilings-small").textContent = clean(report.ceilings_are, 120);
  box.append(el("div", { class: "scroll" }, plainTable([
    { head: "Ceiling", first: true, cell: (r) => clean(r.label, 160) },
    { head: "Limits", cell: (r) => (r.kind === "bandwidth" ? "memory" : clean(r.resource, 60) || "compute") },
    { head: isRun(report) ? "Value" : clean(when, 60), right: true, cell: (r) => rate(r, r.value) },
    { head: "at the maximum clock", right: true, only: (r) => known(r.maximum) && when !== "at the maximum clock", cell: (r) => rate(r, r.maximum) },
    { head: "Datasheet", right: true, only: (r) => known(r.datasheet), cell: (r) => rate(r, r.datasheet) },
    { head: "Working set", right: true, only: (r) => known(r.working_set), cell: (r) => amount(r.working_set, "iB") },
  ].filter((c) => !c.only || report.roofs.some(c.only)), report.roofs)));
  const c = report.ceilings || {};
  const how = [["device_name", ""], ["measured_at", "measured "], ["threads", "threads: "]].filter(([k]) => c[k]).map(([k, label]) => `${label}${clean(c[k], 120)}`);
  if (how.length) box.append(el("p", { class: "note" }, how.join(" · ")));
}

function flat(prefix, value) {
  if (Array.isArray(value)) return [[prefix, value.map((v) => (v && typeof v === "object" ? JSON.stringify(v) : String(v))).join(", ")]];
  if (value && typeof value === "object") return Object.entries(value).flatMap(([k, v]) => flat(prefix ? `${prefix}.${k}` : k, v));
  return value === null || value === undefined ? [] : [[prefix, String(value)]];
}
