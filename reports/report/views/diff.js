// Two runs beside each other: by pass, kernel type, operator and kernel, the largest difference first.

const DIFF_PARTS = [["passes", "By pass"], ["families", "By kernel type"], ["operators", "By operator"], ["kernels", "By kernel"], ["lines", "By line"]];
const FIRST_CHANGES = 30;

function diffCard(difference, names) {
  const parts = DIFF_PARTS.filter(([key]) => difference[key] && difference[key].length);
  const box = el("div", {});
  const show = (key) => box.replaceChildren(shortened(FIRST_CHANGES, difference[key], (rows) => changesTable(key, rows, difference)));
  if (parts.length) show(parts[0][0]);
  const t = difference.total;
  const sentence = t.ratio === null ? "One of the two has no kernel time." :
    `Kernel time: ${amount(t.first_ns, "ns")} in the first, ${amount(t.second_ns, "ns")} in the second (${signedAmount(t.difference_ns)}, ${t.ratio.toFixed(2)}×).`;
  return card("Difference", "times of one capture each: whether a difference is more than noise, they do not say", "span-12",
    el("p", {}, el("span", { class: "minor" }, "first: "), el("strong", {}, clean(names[0], 200)), el("span", { class: "minor" }, " · second: "), el("strong", {}, clean(names[1], 200))),
    el("p", { class: "diff-total" }, sentence),
    difference.notes.length ? el("ul", { class: "plain tone-poor" }, difference.notes.map((n) => el("li", {}, clean(n, 400)))) : null,
    el("div", { class: "controls" }, parts.length ? choice("Compare", parts, parts[0][0], show) : "Nothing to compare: no kernels were captured."), box);
}

const signedAmount = (ns) => (known(ns) ? `${ns > 0 ? "+" : ns < 0 ? "−" : ""}${amount(Math.abs(ns), "ns")}` : ABSENT);

function changesTable(key, rows, difference) {
  const all = difference[key];
  const times = columnScale(all.flatMap((c) => [c.first_ns, c.second_ns]), "ns");
  const largest = Math.max(...all.map((c) => Math.abs(c.difference_ns)), 1);
  const kind = key === "passes" ? "pass" : "family";
  const shares = all.some((c) => known(c.first_efficiency) || known(c.second_efficiency));
  const label = (c) => (key === "kernels" || key === "lines" ? [el("code", {}, clean(c.key, 140)), el("span", { class: "shapes" }, clean(c.shapes, 140))]
    : key === "operators" ? el("code", {}, clean(c.key, 140)) : el("span", { class: "label" }, dot(c.key, kind), clean(c.key, 60)));
  const side = (head, pick) => ({ head, unit: times.suffix, right: true, cell: (c) => number(pick(c), times) });
  const plain = (head, pick, show) => ({ head, right: true, cell: (c) => show(pick(c)) });
  return plainTable([
    { head: { passes: "Pass", families: "Type", operators: "Operator", kernels: "Kernel", lines: "Line (the host's time)" }[key], first: true, cell: label },
    side("First", (c) => c.first_ns), side("Second", (c) => c.second_ns),
    { head: "Difference", class: "timecell", cell: (c) => bar(Math.abs(c.difference_ns) / largest, signedAmount(c.difference_ns), c.difference_ns > 0 ? "poor" : "good") },
    plain("Ratio", (c) => c.ratio, (v) => (known(v) ? `${v.toFixed(2)}×` : ABSENT)),
    plain("Calls, first", (c) => c.first_count, (v) => amount(v, "count")), plain("Calls, second", (c) => c.second_count, (v) => amount(v, "count")),
    ...(shares ? [plain("Efficiency, first", (c) => c.first_efficiency, percent), plain("Efficiency, second", (c) => c.second_efficiency, percent)] : []),
  ], rows, (c) => (c.first_ns === null ? "only-second" : c.second_ns === null ? "only-first" : null));
}
