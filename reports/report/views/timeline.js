// What a trace tells beside its kernels, over the whole capture: annotation ranges, copies, waits for the GPU.

function timelineCard(backend) {
  const parts = [rangesTable(backend.ranges), transfersTable(backend.transfers), waitsTable(backend.waits)].filter(Boolean);
  return parts.length ? card("Ranges, copies and waits", "totals of the capture", "span-12", ...parts.map((part) => el("div", { class: "scroll" }, part))) : null;
}

const FIRST_RANGES = 15;

function rangesTable(ranges) {
  if (!ranges.length) return null;
  return shortened(FIRST_RANGES, ranges, (shown) => plainTable([
    { head: "Range", first: true, cell: (r) => clean(r.name, 120) },
    { head: "Count", right: true, cell: (r) => String(r.count) },
    totalOf(ranges, "On the host", "ns", (r) => r.host_ns),
    { head: "Kernels", right: true, cell: (r) => String(r.kernels) },
    totalOf(ranges, "Kernel time", "ns", (r) => r.kernel_ns),
    { head: "Share", right: true, cell: (r) => percent(r.share) },
  ], shown));
}

function transfersTable(transfers) {
  if (!transfers.length) return null;
  return plainTable([
    { head: "Copy", first: true, cell: (t) => clean(t.name, 120) },
    { head: "Count", right: true, cell: (t) => String(t.count) },
    totalOf(transfers, "Time", "ns", (t) => t.time_ns),
    totalOf(transfers, "Moved", "B", (t) => t.bytes),
    totalOf(transfers, "Bandwidth", "B/s", (t) => t.bandwidth),
  ], transfers);
}

function waitsTable(waits) {
  if (!waits.length) return null;
  return plainTable([
    { head: "Wait for the GPU", first: true, cell: (w) => clean(w.name, 120) },
    { head: "Count", right: true, cell: (w) => String(w.count) },
    totalOf(waits, "Time", "ns", (w) => w.time_ns),
  ], waits);
}

function totalOf(rows, head, unitName, pick) {
  const scale = columnScale(rows.map(pick), unitName);
  return { head, unit: scale.suffix, right: true, cell: (row) => number(pick(row), scale) };
}
