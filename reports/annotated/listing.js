// Code with costs at its left edge: a row has `number` and `text`, and one that costs `cells`, `color` and `title` too.
function listingNode(label, heads, rows, idleWords) {
  const blank = heads.slice(0, -2).map(() => "");
  const texts = (values) => values.map((text) => el("span", {}, text));
  const node = (row) => el("div", { class: row.cells ? "line hot" : "line idle", id: row.id, title: row.title || null, style: row.color ? { borderLeftColor: row.color } : null },
    texts(row.cells || blank), el("span", { class: "number" }, row.number), el("span", { class: "source" }, clean(row.text.replaceAll("\t", "    "), 400)));
  const nodes = [];
  let idle = 0;
  // Where only rows that cost are shown, a passage of others is one line that says how many.
  const close = () => {
    if (idle) nodes.push(el("div", { class: "line passage", "aria-hidden": "true" }, texts(blank), el("span", { class: "number" }, "⋮"), el("span", { class: "source" }, `${idle} ${idleWords}`)));
    idle = 0;
  };
  for (const row of rows) {
    if (row.cells) close();
    else idle += 1;
    nodes.push(node(row));
  }
  close();
  const head = el("div", { class: "line head" }, heads.map((text, i) => el("span", { class: i === heads.length - 1 ? "source" : null }, text)));
  return el("div", { class: "listing lean", role: "region", "aria-label": label, tabindex: "0" }, head, nodes);
}
