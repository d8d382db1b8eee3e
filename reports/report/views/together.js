// What stands between the backends of a report: the difference of any two, and their memory side by side.

function showTogether(report) {
  const parts = [differenceOfTwo(report), memoryOfAll()].filter(Boolean);
  const several = report.backends.length > 1 && parts.length;
  byId("together").append(several ? el("h2", { class: "part" }, "The backends beside each other") : "", ...parts);
}

function memoryOfAll() {
  if (!hasAnswer("memory")) return null;
  const box = el("div", { class: "memory-box", "data-nav": "Memory" }, card("Memory", "", "", el("p", { class: "note" }, "Opening…")));
  whenSeen(box, opened(box, async () => memoryCard(await ask("memory"))));
  return box;
}

function differenceOfTwo(report) {
  const names = report.backends.filter((b) => b.kernels.length).map((b) => b.name);
  if (names.length < 2 || !hasAnswer("diff")) return null;
  const result = el("div", {}, card("Difference", "", "", el("p", { class: "note" }, "Opening…")));
  const chosen = [names[0], names[1]];
  const show = opened(result, async () => diffCard(await ask("diff", { backend: chosen[0], other_backend: chosen[1] }), chosen));
  const selects = ["First backend", "Second backend"].map((label, side) => el("select", { "aria-label": label, onchange: (event) => choose(side, event.target.value) },
    names.map((n) => el("option", { value: n, selected: n === chosen[side] }, clean(n, 80)))));
  // The same backend on both sides would say nothing: the other side then takes what this one had.
  const choose = (side, name) => {
    if (chosen[1 - side] === name) chosen[1 - side] = chosen[side];
    chosen[side] = name;
    selects.forEach((select, i) => { select.value = chosen[i]; });
    show();
  };
  const swap = el("button", { type: "button", class: "quiet", onclick: () => choose(0, chosen[1]) }, "⇄ Swap");
  whenSeen(result, show);
  return el("div", { class: "diff", "data-nav": "Difference" }, el("div", { class: "controls" }, el("span", {}, "From"), selects[0], el("span", {}, "to"), selects[1], swap), result);
}

// A function that shows what `make` gives in `box`, or a sentence where the file is damaged.
const opened = (box, make) => async () => {
  try {
    box.replaceChildren(await make());
  } catch (error) {
    box.replaceChildren(el("p", { class: "banner", role: "alert" }, `It cannot be shown: ${error.message}`));
  }
};
