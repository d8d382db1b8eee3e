// Puts the report together: what concerns all backends, then one panel a backend behind tabs.

function buildPanel(backend, report) {
  const kernels = backend.kernels.length ? new KernelTable(backend) : null;
  const roofline = rooflineCard(backend, report.roofs, (label) => kernels && kernels.find(label));
  const checks = correctnessCard(backend);
  const banner = faulty(backend) ? el("p", { class: "banner", role: "alert" }, el("strong", {}, `✗ ${clean(backend.name, 80)} is ${backend.status}. `), clean(backend.reason, 600), " Its times measure another computation: they say nothing about speed.") : null;
  const unusable = backend.unusable ? el("p", { class: "banner", role: "alert" }, el("strong", {}, `✗ The profile of ${clean(backend.name, 80)} is unusable. `), clean(backend.unusable, 600), " Its timings stand; no number is made from the profile.") : null;
  const files = [["trace", backend.trace], ["generated program", backend.generated]].filter(([, f]) => f && !f.includes("\n"));
  const tree = backend.tree && backend.tree.children.length ? new ModuleTree(backend.tree).node : null;
  const wide = [named("Roofline", roofline && roofline.node), named("Modules", tree)];
  const narrow = [named("What to do next", findingsCard(backend, Boolean(roofline))), named(backend.accounting ? "Accounting" : backend.coverage ? "Coverage" : "Trace checks", accountingCard(backend)), named("Correctness", checks && checks.node)];
  const [first, second, ...rest] = paired(wide.filter(Boolean), narrow.filter(Boolean));
  const grid = el("div", { class: "grid" },
    first, second, groupsCard(backend), named("Kernels", kernels && kernels.node),
    backend.operators.length ? named("Operators", new KernelTable({ kernels: backend.operators }, OPERATORS).node) : null,
    named("Fusion", fusionCard(backend)), named("Timeline", traceCard(backend)), timelineCard(backend), adviceCard(backend), missingCard(backend), rest, symbolsCard(backend));
  const note = files.length ? el("p", { class: "note" }, `Files in the run: ${files.map(([n, f]) => `${n} ${clean(f, 200)}`).join(", ")}.`, annotatedLink(backend)) : null;
  const nothing = grid.children.length ? null : el("p", { class: "note" }, clean(backend.reason, 600) || "Nothing was captured of this backend.");
  return { nodes: [banner, unusable, nothing || grid, note].filter(Boolean), draw: () => { roofline && roofline.draw(); checks && checks.draw(); } };
}

// The listing of the generated program with what each line costs lies beside the report.
function annotatedLink(backend) {
  if (!backend.annotated) return null;
  const href = backend.annotated.split("/").map(encodeURIComponent).join("/");
  return el("span", {}, " What each line of the program costs: ", el("a", { href }, clean(backend.annotated, 200)), ".");
}

// Rows of a wide card beside a narrow one, in order; one that is left alone takes the whole row.
function paired(wide, narrow) {
  const rows = [];
  for (let i = 0; i < Math.max(wide.length, narrow.length); i++) {
    const row = [wide[i], narrow[i]].filter(Boolean);
    if (row.length === 1) row[0].className = row[0].className.replace(/span-\d+/, "span-12");
    else row[1].className = row[1].className.replace(/span-\d+/, "span-5");
    rows.push(row);
  }
  return rows;
}

// Tabs as the ARIA practices have them: arrows move, only the chosen one is in the tab order.
function showTabs(report) {
  const built = new Map();
  const panels = report.backends.map((b, i) => el("div", { role: "tabpanel", id: `panel-${i}`, "aria-labelledby": `tab-${i}`, class: "panel", hidden: true }));
  const select = (i, focus) => {
    tabs.forEach((tab, k) => { tab.setAttribute("aria-selected", String(k === i)); tab.tabIndex = k === i ? 0 : -1; panels[k].hidden = k !== i; });
    if (!built.has(i)) {
      built.set(i, buildPanel(report.backends[i], report));
      panels[i].append(...built.get(i).nodes);
    }
    built.get(i).draw();
    showContents();
    if (focus) tabs[i].focus();
  };
  const tabs = report.backends.map((b, i) => el("button", {
    type: "button", role: "tab", id: `tab-${i}`, "aria-controls": `panel-${i}`, onclick: () => select(i),
    onkeydown: (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (step) select((i + step + report.backends.length) % report.backends.length, true);
    },
  }, clean(b.name, 60), statusPill(b)));
  byId("tabs").append(...tabs);
  byId("panels").append(...panels);
  if (tabs.length) select(tabOfAddress(report.backends));
  byId("tabs").hidden = !tabs.length || !isRun(report);
}

showHeading(REPORT);
if (ANSWERS.job) showJob(ANSWERS.job);
showVerdict(REPORT);
showBackends(REPORT);
showWhere(REPORT);
showSamples(REPORT);
showTabs(REPORT);
showFacts(REPORT);
showTogether(REPORT);
showContents();
followTheme();
scrollToTrace();
document.documentElement.dataset.ready = "true";
