// A program, line by line, with what each line costs.

const { listing, summary } = REPORT;
const costs = new Map(listing.lines.map((line) => [line.number, line]));
const groups = [...listing.lines.map((line) => line.cost), ...listing.others];
const scales = { time: columnScale(groups.map((g) => g.time_ns), "ns"), bytes: scaleFor(groups.map((g) => g.bytes), "B") };
const hottest = Math.max(0, ...listing.lines.map((line) => line.cost.time_ns));

// Roots spread the small shares: a line of a hundredth of the hottest still shows.
const heat = (cost) => `rgb(var(--heat) / ${hottest ? (0.06 + 0.94 * Math.sqrt(cost.time_ns / hottest)).toFixed(3) : 0})`;
const roof = (cost) => (known(cost.efficiency) ? percent(cost.efficiency, 0) : ABSENT);
const told = (line) => `${clean(line.places.join("; "))}\n${clean(line.kernels.join(", "))}`;

function cells(cost) {
  const texts = cost ? [number(cost.time_ns, scales.time), percent(cost.share), number(cost.bytes, scales.bytes), roof(cost)] : ["", "", "", ""];
  return texts.map((text) => el("span", {}, text));
}

function lineNode(text, number_) {
  const line = costs.get(number_);
  return el("div", { class: line ? "line hot" : "line idle", id: `L${number_}`, title: line ? told(line) : null, style: line ? { borderLeftColor: heat(line.cost) } : null },
    cells(line && line.cost), el("span", { class: "number" }, String(number_)), el("span", { class: "source" }, clean(text.replaceAll("\t", "    "), 400)));
}

// Where only lines that cost are shown, a passage of others is one line that says how many.
function program() {
  const nodes = [];
  let idle = 0;
  const close = () => {
    if (idle) nodes.push(el("div", { class: "line passage", "aria-hidden": "true" }, cells(null), el("span", { class: "number" }, "⋮"), el("span", { class: "source" }, `${idle} lines without kernels`)));
    idle = 0;
  };
  listing.text.forEach((text, i) => {
    if (costs.has(i + 1)) close();
    else idle += 1;
    nodes.push(lineNode(text, i + 1));
  });
  close();
  const heads = [`time ${scales.time.suffix}`, "share", `bytes ${scales.bytes.suffix}`, "% of roof", "line", ""];
  const head = el("div", { class: "line head" }, heads.map((text, i) => el("span", { class: i === 5 ? "source" : null }, text)));
  return el("div", { class: "listing lean", role: "region", "aria-label": "The program with its costs", tabindex: "0" }, head, nodes);
}

function hotTable() {
  const lines = [...listing.lines].sort((a, b) => b.cost.time_ns - a.cost.time_ns);
  const columns = [
    { head: "Line", first: true, cell: (l) => [el("span", { class: "swatch", style: { background: heat(l.cost) } }), el("a", { href: `#L${l.number}` }, String(l.number))] },
    { head: "Serves", cell: (l) => el("span", { class: "place" }, clean(l.places[0] || ABSENT)) },
    { head: "Time", unit: scales.time.suffix, right: true, cell: (l) => number(l.cost.time_ns, scales.time) },
    { head: "Share", right: true, cell: (l) => percent(l.cost.share) },
    { head: "% of roof", right: true, cell: (l) => roof(l.cost) },
  ];
  return shortened(12, lines, (rows) => plainTable(columns, rows));
}

function othersTable() {
  if (!listing.others.length) return el("p", { class: "note" }, "There are none.");
  const columns = [
    { head: "Pass and operator", first: true, cell: (g) => clean(g.key) },
    { head: "Time", unit: scales.time.suffix, right: true, cell: (g) => number(g.time_ns, scales.time) },
    { head: "Share", right: true, cell: (g) => percent(g.share) },
    { head: "% of roof", right: true, cell: (g) => roof(g) },
  ];
  return shortened(12, listing.others, (rows) => plainTable(columns, rows));
}

function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  byId("theme").addEventListener("click", () => { document.documentElement.dataset.theme = shown() === "dark" ? "light" : "dark"; });
}

byId("title").append(`${clean(listing.backend)}: what each line costs`);
byId("settings").append(el("span", { class: "chip" }, clean(listing.title)));
byId("summary").append(clean(summary, 500));
const shownProgram = program();
byId("program").append(shownProgram);
byId("which").append(choice("Which lines", [["lean", "Lines that cost"], ["all", "All lines"]], "lean", (value) => shownProgram.classList.toggle("lean", value === "lean")));
byId("hot").append(hotTable());
byId("others").append(othersTable());
followTheme();
document.documentElement.dataset.ready = "";
