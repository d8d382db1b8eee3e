// The timeline of a backend (reports/timeline/), opened when it comes into view: unpacking takes a moment.

const TIMELINES = JSON.parse(byId("timelines").textContent);

function traceCard(backend) {
  const text = Object.hasOwn(TIMELINES, backend.name) ? TIMELINES[backend.name] : null;
  if (text === null) return null;
  if (!text) return card("Timeline", null, "span-12", el("p", { class: "note" }, "It is too large for the report: `perfkit trace` writes it as a file, `perfkit tensorboard` shows it."));
  const box = el("div", { class: "note" }, "Opening…");
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    box.className = "";
    globalThis.perfkitTimeline.mount(box, text, { name: backend.name });
  }, { rootMargin: "300px" });
  seen.observe(box);
  return card("Timeline", "of the whole capture, profiler's own time included", "span-12 timeline-card", box);
}

// The backend that the address names a view of, or the first.
function tabOfAddress(backends) {
  const name = new URLSearchParams(location.hash.slice(1)).get("timeline");
  return Math.max(0, backends.findIndex((backend) => backend.name === name));
}

function scrollToTrace() {
  if (!location.hash.startsWith("#timeline=")) return;
  const box = document.querySelector(".panel:not([hidden]) .timeline-card");
  if (box) box.scrollIntoView();
}
