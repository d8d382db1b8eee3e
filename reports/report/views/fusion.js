// Fusion headroom: fusible kernels one by one, as predicted when fused, and as the compiler fused them.

function fusionCard(backend) {
  const said = backend.fusion;
  if (!said || !said.achieved_by) return null;
  const scale = columnScale(said.parts.flatMap((p) => [p.time_ns, p.predicted_ns, p.achieved_ns]), "ns");
  const count = (value) => (known(value) ? String(Math.round(value)) : "–");
  const by = clean(said.achieved_by, 40);
  const table = plainTable([
    { head: "Pass", first: true, cell: (p) => clean(p.name, 40) },
    { head: "Kernels", right: true, cell: (p) => count(p.kernels) },
    { head: "Time", unit: scale.suffix, right: true, cell: (p) => number(p.time_ns, scale) },
    { head: "Predicted", right: true, cell: (p) => count(p.predicted_kernels) },
    { head: "Fused", unit: scale.suffix, right: true, cell: (p) => el("strong", {}, number(p.predicted_ns, scale)) },
    { head: by, right: true, cell: (p) => count(p.achieved_kernels) },
    { head: "Took", unit: scale.suffix, right: true, cell: (p) => el("strong", {}, number(p.achieved_ns, scale)) },
    { head: "Why they differ", cell: (p) => clean(p.why, 200) },
  ], said.parts);
  const achieved = known(said.achieved_step_ns) ? `; ${by} took ${amount(said.achieved_step_ns, "ns")}` : "";
  const why = said.step_why && said.step_why.length ? ` The difference: ${said.step_why.join(", ")}.` : "";
  return card("Fusion headroom", "fusible kernels one by one, as predicted when fused, and as the compiler fused them", "span-12",
    el("div", { class: "scroll" }, table),
    el("p", { class: "note" }, `The step takes ${amount(said.step_ns, "ns")}; fused, ${amount(said.predicted_step_ns, "ns")} are predicted${achieved}. What a compiler changes elsewhere is not predicted.${why}`),
    ...fusedKernels(said, by));
}

// Why a kernel has no time one by one, where that is not why it has no prediction either.
function apart(kernel) {
  return kernel.apart && kernel.apart !== kernel.why ? `not compared one by one: ${kernel.apart}` : "";
}

// Each kernel of the compiler: predicted from the operators that it stands for, and measured.
function fusedKernels(said, by) {
  const kernels = (said.kernels || []).filter((k) => known(k.measured_ns));
  if (!kernels.some((k) => known(k.predicted_ns))) return [];
  const scale = columnScale(kernels.flatMap((k) => [k.eager_ns, k.predicted_ns, k.measured_ns]), "ns");
  const table = plainTable([
    { head: `Fused kernels of ${by}`, first: true, cell: (k) => clean(`${k.pass_} ${k.operators.join(" → ") || k.name}`, 120) },
    { head: "Calls", right: true, cell: (k) => String(Math.round(k.count)) },
    { head: "One by one", unit: scale.suffix, right: true, cell: (k) => number(k.eager_ns, scale) },
    { head: "Predicted", unit: scale.suffix, right: true, cell: (k) => el("strong", {}, number(k.predicted_ns, scale)) },
    { head: "Took", unit: scale.suffix, right: true, cell: (k) => el("strong", {}, number(k.measured_ns, scale)) },
    { head: "Bound by", cell: (k) => k.bound },
    { head: "Why they differ", cell: (k) => clean([k.why, apart(k)].filter(Boolean).join("; "), 200) },
  ], kernels);
  const error = known(said.kernels_error)
    ? `Weighted by time, the predictions are ${Math.round(said.kernels_error * 100)} % off, for ${Math.round(said.kernels_known * 100)} % of the time of fused kernels.` : "";
  return [el("div", { class: "scroll" }, table), el("p", { class: "note" }, error)];
}
