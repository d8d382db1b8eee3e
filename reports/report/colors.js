// One colour a family and a pass, the same in every chart and table; families unknown here take the spare ones in turn.

const FAMILY_COLORS = {
  matmul: "#3d73d9", attention: "#8a5fd3", normalization: "#16a394", elementwise: "#ee9a2e", softmax: "#dd5795",
  reduction: "#63ad47", embedding: "#a8744c", optimizer: "#dc5646", copy: "#8b98a9", loss: "#4db3e6", fill: "#b3bcc7",
  index: "#c7a424", random: "#7d8b2f", convolution: "#2f8f5b", sort: "#b06a3b", collective: "#b5407a", fused: "#5d62cf",
  other: "#9aa5b4",
};
const PASS_COLORS = {
  encoder: "#4db3e6", forward: "#3d73d9", classifier: "#8a5fd3", backward: "#ee9a2e", optimizer: "#dc5646",
  "several passes": "#16a394", unknown: "#9aa5b4",
};
const SPARE_COLORS = ["#5d62cf", "#2f8f5b", "#b5407a", "#7d8b2f", "#3a8fa3", "#b06a3b", "#7a5195", "#5b7083"];
const spareTaken = new Map();

function colorOf(name, kind) {
  const fixed = kind === "pass" ? PASS_COLORS : FAMILY_COLORS;
  if (Object.hasOwn(fixed, name)) return fixed[name];
  if (!spareTaken.has(name)) spareTaken.set(name, SPARE_COLORS[spareTaken.size % SPARE_COLORS.length]);
  return spareTaken.get(name);
}

const dot = (name, kind) => el("span", { class: "dot", "aria-hidden": "true", style: { background: colorOf(name, kind) } });

// What an efficiency means, as a class; the limits are those of perfkit/render/cells.py. Red is what perfkit flags, and
// nothing else.
function tone(efficiency, broken) {
  if (!known(efficiency)) return "unknown";
  return broken ? "bad" : efficiency >= 0.7 ? "good" : efficiency >= 0.4 ? "fair" : "poor";
}

// A bar with its figure: `share` of the full width, from 0 to 1.
function bar(share, text, className, color) {
  const fill = known(share) ? Math.max(0, Math.min(1, share)) : 0;
  return el("span", { class: `bar ${className || ""}` },
    el("span", { class: "track" }, el("span", { class: "fill", style: { width: `${100 * fill}%`, background: color || null } })),
    el("span", { class: "figure" }, text));
}

// Why a group (or the step of a backend) is flagged: how much of its time lies in which kernels above their roof.
function aboveText(group) {
  if (!group.above_roof) return null;
  const names = group.above_kernels.slice(0, 3).map((name) => clean(name, 80)).join(", ");
  const more = group.above_kernels.length > 3 ? ", …" : "";
  return `${percent(group.above_ns / (group.time_ns ?? group.kernel_ns))} of its time is in kernels faster than their roof allows: ${names}${more}. Their measurement or the model of their work is broken.`;
}

function efficiencyBar(group) {
  const flag = aboveText(group);
  const node = bar(group.efficiency, `${flag ? "! " : ""}${percent(group.efficiency)}`, tone(group.efficiency, flag));
  if (flag) node.title = flag;
  return node;
}
