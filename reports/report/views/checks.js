// Correctness, losses and the symbols of the executed program.

function correctnessCard(backend) {
  const c = backend.correctness;
  if (!c) return null;
  const distance = (check) => (known(check.error) ? check.error / check.allowed : Infinity);
  const checks = [...c.checks].sort((a, b) => Number(a.ok) - Number(b.ok) || distance(b) - distance(a));
  const table = (rows) => plainTable([
    { head: "", cell: (x) => el("span", { class: x.ok ? "tone-good" : "tone-bad" }, x.ok ? "✓" : "✗") },
    { head: "Compared", first: true, cell: (x) => el("code", {}, breakable(clean(x.name, 120))) },
    { head: "Error", right: true, cell: (x) => (known(x.error) ? relativeError(x.error) : "not comparable") },
    { head: "Allowed", right: true, cell: (x) => relativeError(x.allowed) },
    { head: "Eager's own", right: true, cell: (x) => relativeError(x.eager_error) },
  ], rows, (x) => (x.ok ? null : "faulty"));
  const passed = checks.filter((x) => x.ok).length;
  const losses = backend.losses.length || c.reference_losses.length ? el("div", { class: "chart losses", role: "img", "aria-label": "Losses of the first steps, beside the reference" }) : null;
  if (losses) chart(losses, () => lossFigure(backend, c));
  return card("Correctness", `against ${clean(c.reference, 80)}: ${passed} of ${checks.length} checks hold`, "span-5",
    el("ul", { class: "plain problems" }, c.problems.map((p) => el("li", { class: "tone-bad" }, clean(p, 400)))),
    el("div", { class: "checks-body" }, losses, shortened(7, checks, table)));
}

function lossFigure(backend, correctness) {
  const line = (name, values, style) => ({
    kind: "line", name: clean(name, 50), x: values.map((_, i) => i + 1), y: values, hover: values.map((v) => `${clean(name, 50)}: ${known(v) ? v.toFixed(5) : ABSENT}`), ...style,
  });
  const color = correctness.ok ? "var(--accent)" : "var(--bad)";
  const steps = Math.max(backend.losses.length, correctness.reference_losses.length);
  return {
    series: [
      line(correctness.reference || "reference", correctness.reference_losses, { color: "var(--roof)", width: 7 }),
      line(backend.name, backend.losses, { color, width: 1.5, dots: true, size: 6 }),
    ],
    together: true, legend: true, y: { title: "loss" },
    x: { title: "training step", range: [0.7, steps + 0.3], ticks: Array.from({ length: steps }, (_, i) => [i + 1, String(i + 1)]) },
  };
}

function symbolsCard(backend) {
  if (!backend.symbols.length) return null;
  const rows = [...backend.symbols].sort((a, b) => Number(b.expected) - Number(a.expected) || b.count - a.count);
  const table = (shown) => plainTable([
    { head: "Symbol", first: true, cell: (s) => el("code", {}, clean(s.name, 120)) },
    { head: "Trace", cell: (s) => clean(s.trace, 40) },
    { head: "Kernel", cell: (s) => el("code", {}, clean(s.kernel, 120)) },
    { head: "Count", right: true, cell: (s) => amount(s.count, "count") },
    { head: "", cell: (s) => (s.expected ? el("span", { class: "pill good" }, "✓ expected") : null) },
  ], shown);
  return card("Symbols", "which part of the executed program ran on which kernel", "span-12", shortened(14, rows, table));
}
