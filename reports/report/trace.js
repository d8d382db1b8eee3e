// The timeline of a backend (reports/timeline/).

function traceCard(backend) {
  const timelines = ANSWERS.timelines || {};
  const text = Object.hasOwn(timelines, backend.name) ? timelines[backend.name] : null;
  if (text === null) return null;
  if (!text) return card("Timeline", null, "span-12", el("p", { class: "note" }, "It is too large for the report: `perfkit trace` writes it as a file, `perfkit tensorboard` shows it."));
  const box = el("div", { class: "note" }, "Opening…");
  whenSeen(box, () => {
    box.className = "";
    globalThis.perfkitTimeline.mount(box, text, { name: backend.name });
  });
  return card("Timeline", "of the whole capture, profiler's own time included", "span-12 timeline-card", box);
}

// The backend that the address names a view of, else the first with kernels: one that only judges the others has none.
function tabOfAddress(backends) {
  const name = new URLSearchParams(location.hash.slice(1)).get("timeline");
  const named = backends.findIndex((backend) => backend.name === name);
  return named < 0 ? Math.max(0, backends.findIndex((backend) => backend.kernels.length)) : named;
}

function scrollToTrace() {
  if (!location.hash.startsWith("#timeline=")) return;
  const box = document.querySelector(".panel:not([hidden]) .timeline-card");
  if (box) box.scrollIntoView();
}
