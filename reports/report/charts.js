// Plotly in the page's own colours. Charts are drawn again when the page changes between light and dark.

const drawn = new Map(); // element → function that makes {data, layout}

const cssColor = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// Plotly reads a few tags in its texts: data must not be taken for them.
const plotText = (text, limit = 120) =>
  clean(text, limit).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

const lines = (...texts) => texts.filter(Boolean).join("<br>");

function chart(node, make) {
  drawn.set(node, make);
  const { data, layout } = make();
  return Plotly.react(node, data, themed(layout), {
    displaylogo: false, responsive: true,
    modeBarButtonsToRemove: ["select2d", "lasso2d", "autoScale2d", "zoomIn2d", "zoomOut2d"],
  });
}

function redraw() {
  for (const [node, make] of drawn) if (node.isConnected && node.offsetParent !== null) chart(node, make);
}

function themed(layout) {
  const ink = cssColor("--ink"), muted = cssColor("--muted"), line = cssColor("--line"), panel = cssColor("--panel");
  const axis = { gridcolor: line, zerolinecolor: line, linecolor: line, tickcolor: line, tickfont: { color: muted }, automargin: true };
  const font = { family: "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif", size: 12.5, color: ink };
  const themedLayout = {
    font, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", margin: { l: 8, r: 12, t: 8, b: 8 },
    hoverlabel: { bgcolor: panel, bordercolor: line, align: "left", font: { ...font, size: 12.5 } },
    legend: { orientation: "h", x: 0, y: -0.12, yanchor: "top", font: { size: 12.5, color: ink } }, ...layout,
  };
  for (const name of ["xaxis", "yaxis"]) {
    const given = layout[name] || {};
    const title = given.title ? { ...given.title, font: { size: 12.5, color: muted } } : undefined;
    themedLayout[name] = { ...axis, ...given, title };
  }
  return themedLayout;
}
