// The code of kernels, shaded by where their warps were sampled.

const heat = (share) => `rgb(var(--heat) / ${(0.06 + 0.94 * Math.sqrt(share)).toFixed(3)})`;
const shaded = (row) => (row.cells ? { ...row, color: heat(row.heat) } : row);

function listingCard(made) {
  const node = listingNode(made.title, made.heads, made.rows.map(shaded), "lines that were never sampled");
  const which = choice(`Lines of ${made.title}`, [["lean", "Sampled lines"], ["all", "All lines"]], "lean", (value) => node.classList.toggle("lean", value === "lean"));
  return el("section", { class: "card" }, el("div", { class: "bar" }, el("h2", {}, clean(made.title)), which), node);
}

// What units did over the life of a kernel: small figures, one below the other, over the same time.
function lifeCard(kernel) {
  if (!kernel.figures.length) return null;
  const small = (figure) => {
    const node = el("div", { class: "chart", style: { height: "130px" }, role: "img", "aria-label": clean(figure.title) });
    chart(node, () => ({ series: seriesOf(figure), x: { title: figure.x }, y: { title: "%", zero: true } }));
    return el("div", {}, el("p", { class: "minor" }, clean(figure.title)), node);
  };
  const words = kernel.said.map((text) => el("p", { class: "note" }, clean(text, 400)));
  return el("section", { class: "card" }, el("h2", {}, "Over its life, per cent of the peak"), el("div", { class: "multiples" }, kernel.figures.map(small)), words);
}

byId("title").append(clean(REPORT.title));
for (const kernel of REPORT.kernels) byId("kernels").append(el("h2", {}, clean(kernel.title)), lifeCard(kernel) || "", ...kernel.listings.map(listingCard));
followTheme();
document.documentElement.dataset.ready = "";
