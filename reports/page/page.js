// A page of sections, in a file of its own (sections.js).

heading(REPORT.page);
const built = REPORT.page.sections.map((part, i) => sectionCard(part, REPORT.tables[i]));
byId("sections").append(...built.map((one) => one.card));
followTheme();
Promise.all(built.map((one) => one.draw())).then(() => { document.documentElement.dataset.ready = ""; });
