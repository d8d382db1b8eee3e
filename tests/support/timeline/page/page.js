// One timeline on a page of its own; `shown` is what a test asks for its state.
const [[name, text]] = Object.entries(JSON.parse(document.getElementById("answers").textContent).timelines);
globalThis.perfkitTimeline.mount(document.getElementById("here"), text, { name }).then((timeline) => {
  globalThis.shown = timeline;
  document.documentElement.dataset.ready = "true";
});
