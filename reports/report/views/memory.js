// Allocations over time, a chart a backend on common axes, so that before and after compiling stand side by side.

function memoryCard(backends) {
  const told = backends.filter((b) => b.devices.length);
  const problems = backends.filter((b) => b.problem).map((b) => el("p", { class: "reason" }, clean(b.problem, 600)));
  if (!told.length) return card("Memory", "", "span-12", problems, el("p", { class: "note memory-none" }, NO_MEMORY));
  const all = told.flatMap((b) => b.devices.map((d) => ({ ...d, backend: b.name })));
  const charts = told.map((b) => ({ backend: b, node: el("div", { class: "chart memory", role: "img", "aria-label": `Memory over time of ${clean(b.name, 80)}` }) }));
  charts.forEach((c) => chart(c.node, () => memoryFigure(c.backend.devices, all)));
  return card("Memory", "bytes that PyTorch's allocator holds, at every allocation and release", "span-12", problems,
    el("div", { class: "scroll" }, memoryTable(all)),
    el("div", { class: "side-by-side" }, charts.map((c) => el("div", {}, el("h3", {}, clean(c.backend.name, 80)), c.node))));
}

const NO_MEMORY = "No allocations were recorded. Capture them with `perfkit run --memory`, or with profile_memory=True in torch.profiler.";

function memoryTable(all) {
  const column = (head, pick) => {
    const scale = columnScale(all.map(pick), "iB");
    return { head, unit: scale.suffix, right: true, empty: !all.some((d) => known(pick(d))), cell: (d) => number(pick(d), scale) };
  };
  return plainTable([
    { head: "Backend", first: true, cell: (d) => clean(d.backend, 80) },
    { head: "Device", cell: (d) => clean(d.device, 40) },
    { head: "Events", right: true, cell: (d) => amount(d.events, "count") },
    column("Most allocated", (d) => d.peak_allocated), column("Most reserved", (d) => d.peak_reserved), column("At the end", (d) => d.last_allocated),
  ].filter((c) => !c.empty), all);
}

function memoryFigure(devices, all) {
  const bytes = scaleFor(all.map((d) => Math.max(d.peak_allocated, d.peak_reserved || 0)), "iB");
  const longest = Math.max(...all.map((d) => d.time_ns.at(-1)));
  const times = scaleFor([longest], "ns");
  const most = Math.max(...all.map((d) => Math.max(d.peak_allocated, d.peak_reserved || 0)));
  const line = (d, what, values, color, dash) => ({
    kind: "line", step: true, name: clean(devices.length > 1 ? `${d.device} ${what}` : what, 60), color, width: 1.5, dash,
    x: d.time_ns.map((t) => t / times.factor), y: values.map((v) => v / bytes.factor),
    hover: values.map((v, i) => `${amount(v, "iB")} ${what} at ${amount(d.time_ns[i], "ns")}`),
  });
  const series = devices.flatMap((d, i) => [
    { ...line(d, "allocated", d.allocated, SPARE_COLORS[i % SPARE_COLORS.length], false), fill: true },
    ...(d.reserved.length ? [line(d, "reserved", d.reserved, "var(--roof)", true)] : []),
  ]);
  return {
    series, legend: true, x: { title: times.suffix, range: [0, longest / times.factor] },
    y: { title: bytes.suffix, range: [0, (1.05 * most) / bytes.factor] },
  };
}
