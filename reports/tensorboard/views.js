// The views. Each makes {node, draw} from the state {entry, report, backend}; `draw` is called when the node is in the
// page, for charts need its size. A view that has nothing to show says why.

const TABS = [
  ["overview", "Overview"], ["findings", "Findings"], ["operators", "Operators"], ["kernels", "Kernels"], ["roofline", "Roofline"],
  ["trace", "Trace"], ["memory", "Memory"], ["modules", "Modules"], ["diff", "Diff"],
];

const nothing = (text) => el("p", { class: "card nothing" }, text);
const grid = (...cards) => el("div", { class: "grid" }, cards.filter(Boolean));
// What the overview shows of a backend; the rest has a tab of its own.
const IN_OVERVIEW = new Set(["accounting", "groups", "timeline", "correctness", "symbols", "missing", "fusion"]);
const still = (node) => ({ node, draw: () => {} });

const MAKE = {
  overview({ report, layout, backend }) {
    const page = el("div", { class: "overview" });
    page.append(...new DOMParser().parseFromString(OVERVIEW, "text/html").body.children);
    page.querySelector("#theme").remove(); // the bar above has it
    const part = backend && layout.parts.find((p) => p.backend === backend.name);
    const sections = part ? part.sections.filter((section) => !section.view || IN_OVERVIEW.has(section.view)) : [];
    page.querySelector("#sections").append(...cardsOf(layout.sections.filter((section) => !section.view), { report }));
    page.querySelector("#panels").append(report.backends.length > 1 ? el("h2", { class: "part" }, clean(backend.name, 80)) : "", grid(...cardsOf(sections, { report, backend })));
    return { node: page, draw: () => [showHeading, showVerdict, showBackends, showWhere, showSamples, showFacts].forEach((show) => show(report)) };
  },
  findings({ backend }) {
    const cards = [findingsCard(backend), adviceCard(backend), missingCard(backend)].filter(Boolean);
    return still(backend.findings.length ? grid(cards) : el("div", {}, nothing("Nothing stands out: no rule found anything here that is worth mending."), grid(cards)));
  },
  operators({ backend }) {
    if (!backend.operators.length) return still(nothing("No kernel of this profile names its operator. Traces of torch.profiler and runs of perfkit do."));
    return still(new KernelTable({ kernels: backend.operators }, { ...OPERATORS, few: 0 }).node);
  },
  kernels({ backend, find }) {
    if (!backend.kernels.length) return still(nothing(clean(backend.reason, 600) || "No kernels were captured."));
    const table = new KernelTable(backend);
    return { node: table.node, draw: () => { if (find) table.find(find); } };
  },
  roofline({ backend, report, go }) {
    const made = rooflineCard(backend, report.roofs, (label) => go("kernels", label));
    return still(made || nothing("No kernel has both FLOP and bytes that are known, so there are no points. docs/reading-profiles.md says what supplies them."));
  },
  trace(state) {
    if (!state.backend.kernels.some((g) => g.time_ns > 0)) return still(nothing("No kernel of this profile has a duration, so there is nothing to draw in time. In a report of Nsight Compute the metric gpu__time_duration.sum supplies it."));
    const box = el("div", { class: "card trace-box" });
    return { node: box, draw: () => showTrace(box, state) };
  },
  memory(state) {
    const box = el("div", {}, el("p", { class: "note" }, "Reading allocations …"));
    return { node: box, draw: () => showMemory(box, state) };
  },
  modules({ backend }) {
    if (!backend.tree || !backend.tree.children.length) return still(nothing("No kernel of this profile has a module of the model. Runs of perfkit do; so do traces with with_modules=True or a Python stack, and NVTX ranges."));
    return still(new ModuleTree(backend.tree).node);
  },
  diff(state) {
    const box = el("div", {});
    return { node: box, draw: () => showDiff(box, state) };
  },
};

async function showMemory(box, { entry, wanted }) {
  const found = await ask("memory", { run: entry.id }, { wanted, onProgress: (p) => progress(box, entry, p) });
  if (!found) return;
  box.replaceChildren(memoryCard(found));
}

// The timeline is a component of its own, shared with the HTML report.
async function showTrace(box, { entry, backend, wanted, leaving }) {
  const data = await ask("timeline", { run: entry.id, backend: backend.name }, { wanted, binary: true, onProgress: (p) => progress(box, entry, p) });
  if (!data) return;
  const { mount } = await import(at("timeline/timeline.js"));
  if (!wanted()) return;
  box.replaceChildren();
  const timeline = await mount(box, data, { name: `${entry.name} ${backend.name}`, hash: false });
  leaving(() => timeline && timeline.destroy());
}

// Choose the other side, at first another backend of the run or another of its kind; the difference is made by the plugin, for both reports are there.
async function showDiff(box, { entry, backend, runs, report, wanted, memory }) {
  const first = runs.find((r) => r.id === memory.other) || (report.backends.length > 1 && entry) || runs.find((r) => r.kind === entry.kind && r.id !== entry.id) || entry;
  const other = el("select", { "aria-label": "Compare with" }, runs.map((r) => el("option", { value: r.id, selected: r.id === first.id }, clean(r.name, 160))));
  const otherBackend = el("select", { "aria-label": "Backend to compare with" });
  const result = el("div", { class: "diff" });
  let asked = 0;
  const show = async () => {
    const mine = ++asked, still_ = () => wanted() && mine === asked;
    const chosen = runs.find((r) => r.id === other.value);
    const found = await ask("diff", { run: entry.id, backend: backend.name, other: chosen.id, other_backend: otherBackend.value }, { wanted: still_, onProgress: (p) => progress(result, chosen, p) });
    if (found) result.replaceChildren(grid(diffCard(found, [`${entry.name} · ${backend.name}`, `${chosen.name} · ${otherBackend.value}`])));
  };
  const choose = async () => {
    const mine = ++asked;
    memory.other = other.value;
    const chosen = runs.find((r) => r.id === other.value);
    const there = other.value === entry.id ? { report } : await ask("report", { run: chosen.id }, { wanted: () => wanted() && mine === asked, onProgress: (p) => progress(result, chosen, p) });
    if (!there) return;
    const names = there.report.backends.map((b) => b.name);
    const first = other.value === entry.id ? names.find((n) => n !== backend.name) || names[0] : names.includes(backend.name) ? backend.name : names[0];
    otherBackend.replaceChildren(...names.map((n) => el("option", { value: n, selected: n === first }, clean(n, 80))));
    await show();
  };
  const guarded = (work) => () => work().catch((error) => failed(result, error));
  other.addEventListener("change", guarded(choose));
  otherBackend.addEventListener("change", guarded(show));
  box.replaceChildren(el("div", { class: "controls" }, el("span", {}, `${clean(entry.name, 160)} · ${clean(backend.name, 80)} beside`), other, otherBackend), result);
  await guarded(choose)();
}
