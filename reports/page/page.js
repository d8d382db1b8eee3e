// A page of sections, in a file of its own (sections.js).

heading(PAGE);
const built = PAGE.sections.map(sectionCard);
byId("sections").append(...built.map((one) => one.node));
followTheme();
Promise.all(built.map((one) => one.draw())).then(() => { document.documentElement.dataset.ready = ""; });
