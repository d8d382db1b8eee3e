// What to do next, what NVIDIA's rules say, and what the profile does not hold.

const WHOLE = { profile: "kernel time" };

// `brief` for a card beside another: fewer of them, their evidence folded.
function findingsCard(backend, brief = false) {
  if (!backend.findings.length && !backend.unjudged.length) return null;
  const few = brief ? 4 : 6;
  const largest = Math.max(...backend.findings.map((f) => f.saving_ns));
  const items = backend.findings.map((f) => finding(backend, f, largest, brief));
  const list = el("ol", { class: "findings" }, items.slice(0, few));
  const more = items.length > few
    ? el("button", { type: "button", class: "quiet more", onclick: () => { list.replaceChildren(...items); more.remove(); } }, `Show all ${items.length}`)
    : null;
  return card("What to do next", "the largest first; savings are upper bounds, and some are about the same time: they do not add up", "span-12", list, more, unjudged(backend));
}

function unjudged(backend) {
  const said = backend.unjudged.map((u) => `${clean(u.rule, 60)} (${clean(u.why, 300)})`).join("; ");
  return said ? el("p", { class: "minor" }, `Not judged: ${said}.`) : null;
}

function finding(backend, f, largest, brief) {
  const evidence = el("p", {}, clean(f.evidence, 1200));
  const saving = `${f.bounded === false ? "" : "≤ "}${amount(f.saving_ns, "ns")}`; // what is no bound is not called one
  return el("li", {},
    el("div", { class: "finding" }, el("strong", { class: "title" }, clean(f.title, 400)), el("code", { class: "minor" }, clean(f.name, 40)),
      el("span", { class: "saving" }, bar(f.saving_ns / largest, saving), el("span", { class: "minor" }, `${percent(f.share)} of the ${WHOLE[backend.per] || backend.per}`))),
    brief ? null : evidence,
    f.lines.length ? el("ul", { class: "plain lines" }, f.lines.map(findingLine)) : null,
    el("p", { class: "remedy" }, "→ ", clean(f.remedy, 600)),
    brief ? el("details", {}, el("summary", {}, "Evidence"), evidence) : null);
}

// A source line that a finding is about, its share and its text.
function findingLine(line) {
  return el("li", {}, "at ", el("code", {}, clean(lineOf(line), 200)), ` ${percent(line.share)}`, line.code ? el("code", { class: "minor" }, ` ${clean(line.code, 200)}`) : null);
}

function adviceCard(backend) {
  if (!backend.advice.length) return null;
  const about = (a) => `${percent(a.speedup, 0)}${a.scope === "global" ? "" : " of a part"}`;
  const table = plainTable([
    { head: "Kernel", first: true, cell: (a) => el("code", {}, clean(a.kernel, 80)) },
    { head: "Estimate", right: true, cell: about },
    { head: "NVIDIA's rule", cell: (a) => [el("strong", {}, clean(a.title, 120)), " ", clean(a.text, 1200)] },
  ], backend.advice);
  return card("What NVIDIA's rules say", "NVIDIA's own estimates, stored in the report; they do not add up", "span-12", el("div", { class: "scroll advice" }, table));
}

function missingCard(backend) {
  if (!backend.missing.length) return null;
  const table = plainTable([
    { head: "What", first: true, cell: (m) => [clean(m.what, 120), m.for_roof ? el("span", { class: "minor" }, " roofs depend on it") : null] },
    { head: "Kernels", right: true, cell: (m) => `${m.kernels} of ${m.of}` },
    { head: "Option of ncu that supplies it", cell: (m) => el("code", { class: "option" }, clean(m.option, 600)) },
  ], backend.missing);
  return card("Not in this report", "and how to collect it", "span-12", el("div", { class: "scroll" }, table));
}
