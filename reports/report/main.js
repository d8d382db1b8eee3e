// Puts the report together: what concerns all backends, then one panel a backend behind tabs.

function buildPanel(backend, report) {
  const kernels = backend.kernels.length ? new KernelTable(backend) : null;
  const part = PAGE.parts.find((p) => p.backend === backend.name);
  const cards = cardsOf(part ? part.sections : [], { backend, report, kernels, find: (label) => kernels && kernels.find(label) });
  const banner = faulty(backend) ? el("p", { class: "banner", role: "alert" }, el("strong", {}, `✗ ${clean(backend.name, 80)} is ${backend.status}. `), clean(backend.reason, 600), " Its times measure another computation: they say nothing about speed.") : null;
  const unusable = backend.unusable ? el("p", { class: "banner", role: "alert" }, el("strong", {}, `✗ The profile of ${clean(backend.name, 80)} is unusable. `), clean(backend.unusable, 600), " Its timings stand; no number is made from the profile.") : null;
  const files = [["trace", backend.trace], ["generated program", backend.generated]].filter(([, f]) => f && !f.includes("\n"));
  const note = files.length ? el("p", { class: "note" }, `Files in the run: ${files.map(([n, f]) => `${n} ${clean(f, 200)}`).join(", ")}.`, annotatedLink(backend)) : null;
  const shown = cards.length ? el("div", { class: "grid" }, cards) : el("p", { class: "note" }, clean(backend.reason, 600) || "Nothing was captured of this backend.");
  return [banner, unusable, shown, note].filter(Boolean);
}

// The listing of the generated program with what each line costs lies beside the report.
function annotatedLink(backend) {
  if (!backend.annotated) return null;
  const href = backend.annotated.split("/").map(encodeURIComponent).join("/");
  return el("span", {}, " What each line of the program costs: ", el("a", { href }, clean(backend.annotated, 200)), ".");
}

// Tabs as the ARIA practices have them: arrows move, only the chosen one is in the tab order.
function showTabs(report) {
  const built = new Set();
  const panels = report.backends.map((b, i) => el("div", { role: "tabpanel", id: `panel-${i}`, "aria-labelledby": `tab-${i}`, class: "panel", hidden: true }));
  const select = (i, focus) => {
    tabs.forEach((tab, k) => { tab.setAttribute("aria-selected", String(k === i)); tab.tabIndex = k === i ? 0 : -1; panels[k].hidden = k !== i; });
    if (!built.has(i)) {
      built.add(i);
      panels[i].append(...buildPanel(report.backends[i], report));
    }
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

function showSections() {
  byId("sections").append(...cardsOf(PAGE.sections, { report: REPORT }));
}

showHeading(REPORT);
if (ANSWERS.job) showJob(ANSWERS.job);
showVerdict(REPORT);
showBackends(REPORT);
showWhere(REPORT);
showSamples(REPORT);
showSections();
showTabs(REPORT);
showFacts(REPORT);
showTogether(REPORT);
showContents();
followTheme();
scrollToTrace();
whenDrawn(() => { document.documentElement.dataset.ready = "true"; });
