// Colours: a shade a family, pass, category or class of efficiency, as pixels for light and dark.

export const FAMILIES = {
  matmul: "#3d73d9", attention: "#8a5fd3", normalization: "#16a394", elementwise: "#ee9a2e", softmax: "#dd5795",
  reduction: "#63ad47", embedding: "#a8744c", optimizer: "#dc5646", copy: "#8b98a9", loss: "#4db3e6", fill: "#b3bcc7",
  index: "#c7a424", random: "#7d8b2f", convolution: "#2f8f5b", sort: "#b06a3b", collective: "#b5407a", fused: "#5d62cf",
  other: "#9aa5b4",
};
export const PASSES = { encoder: "#4db3e6", forward: "#3d73d9", classifier: "#8a5fd3", backward: "#ee9a2e", optimizer: "#dc5646" };
const CATEGORIES = {
  cpu_op: "#7f9cc9", user_annotation: "#a3b18a", runtime: "#c08497", python_function: "#b0a8c9", overhead: "#c9a66b",
  step: "#8b98a9", gpu_kernel: "#9aa5b4", memcpy: "#8b98a9", memset: "#b3bcc7", other: "#9aa5b4",
};
// The limits of perfkit/render/cells.py.
const CLASSES = [["≥ 70 % of roof", "#34a871"], ["40–70 %", "#e0a52e"], ["under 40 %", "#e2764a"], ["above its roof: broken", "#d8434e"], ["not judged", "#9aa5b4"]];
const SPARE = ["#5d62cf", "#2f8f5b", "#b5407a", "#7d8b2f", "#3a8fa3", "#b06a3b", "#7a5195", "#5b7083"];
export const MODES = [["family", "kernel type"], ["pass", "pass"], ["efficiency", "efficiency"]];
const MOST = 60; // distinct colours; the upper half of the shades holds them faded

export const efficiencyClass = (e) => (!(e >= 0) ? 4 : e > 1.05 ? 3 : e >= 0.7 ? 0 : e >= 0.4 ? 1 : 2);

// {legend: [[word, colour]], shade: Uint8Array an event, colors: Uint32Array(256)}. What `matches` (flags, or null) leaves
// out is faded.
export function coloring(data, mode, matches, dark) {
  const legend = [];
  const numbers = new Map();
  const numberOf = (word, color) => {
    if (!numbers.has(word)) { numbers.set(word, numbers.size % MOST); legend.push([word, color]); }
    return numbers.get(word);
  };
  const category = data.categories.map((word) => () => numberOf(word, CATEGORIES[word] || SPARE[1]));
  const family = data.families.map((word, i) => () => numberOf(word, FAMILIES[word] || SPARE[i % SPARE.length]));
  const pass = data.passes.map((word, i) => () => numberOf(word, PASSES[word] || SPARE[i % SPARE.length]));
  const pick = (i) => {
    const own = data.category[i], passBand = data.categories[own] === "pass";
    if (mode === "efficiency" && data.row[i] >= 0) return numberOf(...CLASSES[efficiencyClass(data.efficiency[i])]);
    if ((mode === "pass" || passBand) && pass[data.pass[i]]) return pass[data.pass[i]]();
    if (mode === "family" && family[data.family[i]]) return family[data.family[i]]();
    return (category[own] || category.at(-1))();
  };
  const shade = new Uint8Array(data.count);
  const known = new Map(); // most events share few combinations
  for (let i = 0; i < data.count; i++) {
    const key = ((data.category[i] * 32768 + data.family[i] + 1) * 32768 + data.pass[i] + 1) * 8
      + (mode === "efficiency" ? (data.row[i] >= 0 ? efficiencyClass(data.efficiency[i]) : 5) : 0);
    let number = known.get(key);
    if (number === undefined) known.set(key, (number = pick(i)));
    shade[i] = matches && !matches[i] ? number + 64 : number;
  }
  return { legend, shade, colors: pixels(legend, dark) };
}

// Pixels of shade 0–63 as they are, 64–127 faded, and 128 on: each one's last column, a little towards the ground.
function pixels(legend, dark) {
  const ground = dark ? [22, 29, 38] : [255, 255, 255];
  const colors = new Uint32Array(256);
  legend.slice(0, MOST).forEach(([, color], i) => {
    const rgb = [1, 3, 5].map((at) => Number.parseInt(color.slice(at, at + 2), 16));
    const mixed = (share) => rgb.map((c, k) => Math.round(c * (1 - share) + ground[k] * share));
    const faded = rgb.map((c, k) => Math.round(((c + 2 * 128) / 3) * 0.22 + ground[k] * 0.78));
    colors[i] = pixel(mixed(0));
    colors[i + 128] = pixel(mixed(0.55));
    colors[i + 64] = colors[i + 192] = pixel(faded);
  });
  return colors;
}

const pixel = ([r, g, b]) => ((255 << 24) | (b << 16) | (g << 8) | r) >>> 0; // little endian, as every browser runs

// Whether an element stands on a dark page, by its color-scheme.
export function isDark(element) {
  const scheme = getComputedStyle(element).colorScheme.split(" ");
  return scheme.includes("dark") && (!scheme.includes("light") || matchMedia("(prefers-color-scheme: dark)").matches);
}
