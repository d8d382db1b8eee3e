// The timeline of all ranks, below the page's sections.

function ranksTimeline(text) {
  const why = "It is too large for the report: `perfkit trace` writes it as a file.";
  const box = el("div", { class: "note" }, text ? "Opening…" : why);
  if (text) whenSeen(box, () => { box.className = ""; globalThis.perfkitTimeline.mount(box, text, { name: "ranks" }); });
  return el("section", { class: "card span-12 timeline-card" }, el("h2", {}, "Timeline of the ranks"),
    el("p", { class: "note" }, "On the first rank's clock. Arrows lead from the rank that comes last to a collective to each one that waits for it."), box);
}

if (Object.hasOwn(ANSWERS.timelines || {}, "ranks")) byId("ranks").append(ranksTimeline(ANSWERS.timelines.ranks));
