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

const cells = (cost) => [number(cost.time_ns, scales.time), percent(cost.share), number(cost.bytes, scales.bytes), roof(cost)];

function program() {
  const heads = [`time ${scales.time.suffix}`, "share", `bytes ${scales.bytes.suffix}`, "% of roof", "line", ""];
  const rows = listing.text.map((text, i) => {
    const line = costs.get(i + 1);
    return { id: `L${i + 1}`, number: String(i + 1), text, ...(line && { cells: cells(line.cost), color: heat(line.cost), title: told(line) }) };
  });
  return listingNode("The program with its costs", heads, rows, "lines without kernels");
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
