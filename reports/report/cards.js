// The report's own views of what a section names, each drawn once in a panel; a section without one is drawn as it is
// (page/sections.js). A view gives a node, or nothing where
// there is nothing to show.

const VIEWS = {
  findings: ({ backend }) => named("What to do next", findingsCard(backend, backend.points.length > 0)),
  roofline: ({ backend, report, find }) => named("Roofline", rooflineCard(backend, report.roofs, find)),
  accounting: ({ backend }) => named(backend.accounting ? "Accounting" : backend.coverage ? "Coverage" : "Trace checks", accountingCard(backend)),
  fusion: ({ backend }) => named("Fusion", fusionCard(backend)),
  groups: ({ backend }) => groupsCard(backend),
  lines: ({ backend }) => (backend.lines.length ? named("Lines", new LineTable(backend).node) : null),
  kernels: ({ kernels }) => kernels && named("Kernels", kernels.node),
  operators: ({ backend }) => (backend.operators.length ? named("Operators", new KernelTable({ kernels: backend.operators }, OPERATORS).node) : null),
  modules: ({ backend }) => (backend.tree && backend.tree.children.length ? named("Modules", new ModuleTree(backend.tree).node) : null),
  trace: ({ backend }) => named("Timeline", traceCard(backend)),
  timeline: ({ backend }) => timelineCard(backend),
  symbols: ({ backend }) => symbolsCard(backend),
  correctness: ({ backend }) => named("Correctness", correctnessCard(backend)),
  advice: ({ backend }) => adviceCard(backend),
  missing: ({ backend }) => missingCard(backend),
};

// The cards of `sections`, in rows.
function cardsOf(sections, context) {
  const seen = new Set();
  const due = sections.filter((s) => !s.view || (VIEWS[s.view] && !seen.has(s.view) && seen.add(s.view)));
  return inRows(due.map((s) => (s.view ? VIEWS[s.view](context) : sectionCard(s))).filter(Boolean));
}

const isNarrow = (node) => /span-[45]\b/.test(node.className);
const isWide = (node) => /span-[78]\b/.test(node.className);

// Each narrow card beside the next wide one and the other way round, the wide one first; one that is left alone takes
// the whole row.
function inRows(nodes) {
  const rows = [], left = [...nodes];
  while (left.length) {
    const node = left.shift(), fits = isNarrow(node) ? isWide : isWide(node) ? isNarrow : null;
    const at = fits ? left.findIndex(fits) : -1;
    const pair = at < 0 ? [] : left.splice(at, 1);
    if (fits && !pair.length) node.className = node.className.replace(/span-\d+/, "span-12");
    rows.push(...(isNarrow(node) ? [...pair, node] : [node, ...pair]));
  }
  return rows;
}
