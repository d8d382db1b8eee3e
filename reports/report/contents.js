// The way to each part of the report: it stays at the top of the window. Parts are the shown elements with data-nav.

const named = (name, node) => {
  if (node) node.dataset.nav = name;
  return node;
};

function showContents() {
  const parts = [...document.querySelectorAll("[data-nav]")].filter((part) => !part.closest("[hidden]"));
  byId("contents").replaceChildren(...parts.map((part) =>
    el("button", { type: "button", onclick: () => part.scrollIntoView({ block: "start" }) }, part.dataset.nav)));
}
