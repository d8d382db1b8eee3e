// The code of kernels, shaded by where their warps were sampled.

const heat = (share) => `rgb(var(--heat) / ${(0.06 + 0.94 * Math.sqrt(share)).toFixed(3)})`;
const shaded = (row) => (row.cells ? { ...row, color: heat(row.heat) } : row);

function listingCard(made) {
  const node = listingNode(made.title, made.heads, made.rows.map(shaded), "lines that were never sampled");
  const which = choice(`Lines of ${made.title}`, [["lean", "Sampled lines"], ["all", "All lines"]], "lean", (value) => node.classList.toggle("lean", value === "lean"));
  return el("section", { class: "card" }, el("div", { class: "bar" }, el("h2", {}, clean(made.title)), which), node);
}

byId("title").append(clean(REPORT.title));
for (const kernel of REPORT.kernels) byId("kernels").append(el("h2", {}, clean(kernel.title)), ...kernel.listings.map(listingCard));
followTheme();
document.documentElement.dataset.ready = "";
