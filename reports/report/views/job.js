// The ranks of a job together, above the report of one of them.

function showJob(job) {
  document.title = `${clean(job.page.title, 120)} · perfkit`;
  byId("title").textContent = clean(job.page.title, 300);
  byId("settings").prepend(...job.page.settings.map((text) => el("span", { class: "chip" }, clean(text))));
  byId("job").append(el("section", { class: "verdict", "aria-label": "Verdict on the ranks" }, verdictNodes(job.page)));
  byId("job").append(...job.page.sections.map(sectionCard));
  byId("ranks").after(el("h2", { class: "part" }, clean(job.detail)));
}
