// What the page can ask beside the report: `ask` here takes it from the file, the TensorBoard plugin's from the server.

const ANSWERS = JSON.parse(byId("answers").textContent);

// The answer to `name` ("memory" or "diff"); null where the file holds none.
async function ask(name, { backend, other_backend: other } = {}) {
  const text = name === "memory" ? ANSWERS.memory : ((ANSWERS.differences || {})[backend] || {})[other];
  return text ? JSON.parse(new TextDecoder().decode(await globalThis.perfkitTimeline.unpack(text))) : null;
}

const hasAnswer = (name) => (name === "memory" ? Boolean(ANSWERS.memory) : Object.keys(ANSWERS.differences || {}).length > 0);

// Do it when `box` comes near the window: unpacking takes a moment.
function whenSeen(box, run) {
  const seen = new IntersectionObserver((entries) => {
    if (!entries.some((entry) => entry.isIntersecting)) return;
    seen.disconnect();
    run();
  }, { rootMargin: "300px" });
  seen.observe(box);
}
