// A page of sections, in a file of its own (sections.js).

function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  redraw();
}

function followTheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const shown = () => document.documentElement.dataset.theme || (dark.matches ? "dark" : "light");
  byId("theme").addEventListener("click", () => setTheme(shown() === "dark" ? "light" : "dark"));
  dark.addEventListener("change", redraw);
}

heading(REPORT.page);
const built = REPORT.page.sections.map((part, i) => sectionCard(part, REPORT.tables[i]));
byId("sections").append(...built.map((one) => one.card));
followTheme();
Promise.all(built.map((one) => one.draw())).then(() => { document.documentElement.dataset.ready = ""; });
