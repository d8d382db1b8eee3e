// A page of sections, in a file of its own (sections.js).

heading(PAGE);
const built = PAGE.sections.map(sectionCard);
byId("sections").append(...built);
followTheme();
whenDrawn(() => { document.documentElement.dataset.ready = ""; });
