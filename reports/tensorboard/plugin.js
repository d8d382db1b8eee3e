// The page: what is under the logdir, one run of it at a time, one view of that.

const REFRESH_MS = 30_000;
const KIND_NAMES = { run: "perfkit runs", ranks: "ranks of a job", trace: "traces of torch.profiler", ncu: "Nsight Compute", nsys: "Nsight Systems" };

// Only what the plugin itself serves may be loaded, whatever a profile says.
const POLICY = "default-src 'none'; script-src 'self'; connect-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; font-src data:; base-uri 'none'; form-action 'none'";

const page = { runs: [], entry: null, report: null, layout: null, backend: null, view: "overview", turn: 0, memory: {}, notes: [] };

async function render() {
  document.head.append(
    el("meta", { charset: "utf-8" }), el("link", { rel: "stylesheet", href: at("style.css") }),
    el("meta", { "http-equiv": "Content-Security-Policy", content: POLICY }));
  document.documentElement.lang = "en";
  document.body.append(shell());
  followTheme();
  followTensorBoard();
  Object.assign(page, remembered());
  await reload();
  addEventListener("focus", reload);
  bootstrap();
  setInterval(() => { if (!document.hidden) reload(); }, REFRESH_MS);
}

function shell() {
  return el("div", { class: "plugin" },
    el("div", { class: "bar-top" },
      el("span", { class: "brand" }, el("span", { class: "mark", "aria-hidden": "true" }), "perfkit"),
      el("select", { id: "run", "aria-label": "Run", onchange: (event) => open(event.target.value) }),
      el("span", { id: "backends-choice" }),
      el("span", { id: "count", class: "minor", role: "status" }),
      el("button", { type: "button", id: "reload", class: "quiet", onclick: reload }, "Reload"),
      el("button", { type: "button", id: "theme", class: "quiet", "aria-label": "Switch between light and dark" }, "◐")),
    el("nav", { class: "tabs views", role: "tablist", "aria-label": "Views" }, TABS.map(([key, name]) => el("button", {
      type: "button", role: "tab", id: `view-${key}`, "aria-controls": "view", "data-view": key, onclick: () => go(key), onkeydown: alongTabs }, name))),
    el("main", { id: "view", role: "tabpanel", "aria-live": "polite", tabindex: "-1" }));
}

function alongTabs(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  const keys = TABS.map(([key]) => key);
  const next = keys[(keys.indexOf(event.currentTarget.dataset.view) + step + keys.length) % keys.length];
  go(next);
  byId(`view-${next}`).focus();
}

// What is under the logdir now. The run that is shown is read again only when its files changed.
async function reload() {
  let listing;
  try {
    listing = await ask("runs", {});
  } catch (error) {
    return failed(byId("view"), error);
  }
  const before = JSON.stringify([page.runs, page.notes]);
  page.runs = listing.entries;
  page.notes = listing.notes;
  if (JSON.stringify([page.runs, page.notes]) === before && page.entry) return;
  listRuns();
  const now = page.runs.find((r) => [r.id, r.name].includes(page.wantedRun) || (page.entry && r.id === page.entry.id)) || page.runs[0];
  const same = page.entry && now && now.id === page.entry.id && now.modified === page.entry.modified && now.size === page.entry.size;
  if (!same) await open(now && now.id);
}

function listRuns() {
  const groups = Object.entries(KIND_NAMES).map(([kind, label]) => [label, page.runs.filter((r) => r.kind === kind)]).filter(([, runs]) => runs.length);
  byId("run").replaceChildren(...groups.map(([label, runs]) => el("optgroup", { label }, runs.map((r) => el("option", { value: r.id }, clean(r.name, 160))))));
  if (page.entry) byId("run").value = page.entry.id;
  byId("run").hidden = !page.runs.length;
  byId("count").textContent = `${page.runs.length} under the logdir`;
  byId("count").title = page.notes.map((n) => clean(n, 400)).join("\n");
}

async function open(id) {
  const turn = ++page.turn;
  const box = byId("view");
  page.entry = page.runs.find((r) => r.id === id) || null;
  page.report = page.layout = page.backend = null;
  chooseBackends();
  if (!page.entry) return empty(box);
  page.wantedRun = "";
  byId("run").value = page.entry.id;
  remember();
  try {
    const wanted = () => turn === page.turn;
    progress(box, page.entry, { stage: "asking", seconds: 0 });
    document.querySelector(".views").hidden = page.entry.kind === "ranks";
    if (page.entry.kind === "ranks") return void await showRanks(box, page.entry, wanted);
    const found = await ask("report", { run: page.entry.id }, { wanted, onProgress: (p) => progress(box, page.entry, p) });
    if (!found) return;
    const { report } = found;
    page.report = report;
    page.layout = found.page;
    page.backend = report.backends.find((b) => b.name === page.wantedBackend) || report.backends[0] || null;
    chooseBackends();
    await show();
  } catch (error) {
    if (turn === page.turn) failed(box, error);
  }
}

// What the traces of ranks tell together: a page of its own, whichever view is chosen.
async function showRanks(box, entry, wanted) {
  delete document.documentElement.dataset.view;
  leave();
  const found = await ask("ranks", { run: entry.id }, { wanted, onProgress: (p) => progress(box, entry, p) });
  if (!found) return;
  const { mount } = await import(at("timeline/timeline.js"));
  if (!wanted()) return;
  const [first, ...rest] = found.page.verdict.map((text) => el("p", {}, clean(text, 500)));
  const cards = found.page.sections.map(sectionCard);
  const line = el("div", { class: "note" }, "The timeline is too large for this page: `perfkit trace` writes it as a file.");
  box.replaceChildren(el("h1", {}, clean(found.page.title)), el("div", { class: "verdict" }, el("div", { class: "lead" }, first), rest),
    ...cards, el("section", { class: "card" }, el("h2", {}, "Timeline of the ranks"), line));
  if (found.timeline) {
    const shown = await mount(line, found.timeline, { name: "ranks", hash: false });
    if (shown) endings.push(() => shown.destroy());
  }
  if (wanted()) document.documentElement.dataset.view = "ranks";
}

function chooseBackends() {
  const names = page.report ? page.report.backends.map((b) => b.name) : [];
  byId("backends-choice").replaceChildren(...(names.length > 1
    ? [choice("Backend", names.map((n) => [n, clean(n, 60)]), page.backend.name, (name) => {
      page.wantedBackend = name;
      page.backend = page.report.backends.find((b) => b.name === name);
      show();
    })] : []));
}

async function go(view, find) {
  page.view = view;
  await show(find);
}

// Draw the chosen view of the chosen backend.
async function show(find) {
  const box = byId("view"), turn = ++page.turn;
  document.querySelectorAll(".views [role=tab]").forEach((tab) => {
    const chosen = tab.dataset.view === page.view;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
  });
  remember();
  if (!page.report) return;
  delete document.documentElement.dataset.view;
  leave();
  const wanted = () => turn === page.turn;
  try {
    if (!page.backend && page.view !== "overview") return void box.replaceChildren(nothing("This run has no backend: nothing was captured."));
    const made = MAKE[page.view]({ ...page, runs: page.runs.filter((r) => r.kind !== "ranks"), find, go, wanted, leaving: (end) => endings.push(end) });
    box.replaceChildren(made.node);
    await made.draw();
    await new Promise(whenDrawn);
    if (wanted()) document.documentElement.dataset.view = page.view;
  } catch (error) {
    if (wanted()) failed(box, error);
  }
}

// What a view holds on to ends with it.
const endings = [];

function leave() {
  for (const end of endings.splice(0)) end();
  forgetCharts();
}

function progress(box, entry, { stage, seconds }) {
  box.replaceChildren(el("div", { class: "card nothing", role: "status" }, el("p", {}, `${clean(entry.name, 200)}: ${clean(stage, 120)} …`),
    el("progress", {}), seconds >= 1 ? el("p", { class: "note" }, `for ${Math.round(seconds)} s`) : null));
}

function failed(box, error) {
  if (!(error instanceof Failed)) console.error(error);
  const text = error instanceof Failed ? error.message : `perfkit's page failed: ${error.message}`;
  box.replaceChildren(el("div", { class: "banner", role: "alert" }, el("strong", {}, "Cannot be shown. "), clean(text, 1200)));
  document.documentElement.dataset.view = "failed";
}

function empty(box) {
  box.replaceChildren(nothing("Nothing that perfkit can read is under the logdir: no run of perfkit, no trace of torch.profiler (*.pt.trace.json, .gz), no report of Nsight Compute (.ncu-rep), no export of Nsight Systems (.sqlite)."),
    ...page.notes.map((n) => el("p", { class: "note" }, clean(n, 400))));
  document.documentElement.dataset.view = "empty";
}

// The choice survives a reload of TensorBoard's page; `…/#perfkit&p.perfkit.run=NAME` opens on a run of that name.
function remembered() {
  let kept = {};
  try {
    kept = JSON.parse(sessionStorage.getItem("perfkit") || "{}");
    const asked = new URLSearchParams(parent.location.hash.replace(/^#/, ""));
    kept = { ...kept, ...Object.fromEntries(["run", "view", "backend"].map((k) => [k, asked.get(`p.perfkit.${k}`)]).filter(([, v]) => v)) };
  } catch { /* no storage, or a foreign page around this one */ }
  const view = TABS.some(([key]) => key === kept.view) ? kept.view : "overview";
  return { wantedRun: kept.run || "", wantedBackend: kept.backend || "", view };
}

function remember() {
  const kept = { run: page.entry ? page.entry.id : page.wantedRun, view: page.view, backend: page.backend ? page.backend.name : page.wantedBackend };
  try { sessionStorage.setItem("perfkit", JSON.stringify(kept)); } catch { /* no storage */ }
}

// TensorBoard's own switch between light and dark, where its page can be seen.
function followTensorBoard() {
  try {
    const body = parent.document.body;
    const follow = () => setTheme(body.classList.contains("dark-mode") ? "dark" : "light");
    new MutationObserver(follow).observe(body, { attributeFilter: ["class"] });
    follow();
  } catch { /* a foreign page around this one */ }
}

// TensorBoard says over a channel when its own reload button was pressed.
function bootstrap() {
  const made = new MessageChannel();
  made.port1.onmessage = (event) => { if (String(event.data).includes("experimental.DataReloaded")) reload(); };
  parent.postMessage("experimental.bootstrap", location.origin, [made.port2]);
}
