// Axes of a chart: where a value lies in pixels, and which values are marked. An axis is {title, log, range, zero,
// ticks: [[value, text]], categories: [name]}; all may be left out.

const RAISED = { "-": "⁻", 0: "⁰", 1: "¹", 2: "²", 3: "³", 4: "⁴", 5: "⁵", 6: "⁶", 7: "⁷", 8: "⁸", 9: "⁹" };
const PREFIXES = { 3: "k", 6: "M", 9: "G", 12: "T", 15: "P", 18: "E" };
const LETTER = 6.8; // pixels, about, of a letter of an axis

function axisOf(spec, values, [from, to]) {
  const range = spec.range || rangeOf(spec, values);
  const scaled = spec.log ? Math.log10 : Number;
  const [low, high] = range.map(scaled);
  const at = (value) => from + ((scaled(value) - low) / (high - low || 1)) * (to - from);
  const inverse = (pixel) => {
    const value = low + ((pixel - from) / (to - from)) * (high - low);
    return spec.log ? 10 ** value : value;
  };
  return { ...spec, range, at, inverse, from, to };
}

// All values with a margin; from 0 where the axis says so, and a few powers of ten of a logarithmic one.
function rangeOf(spec, values) {
  if (spec.categories) return [-0.5, spec.categories.length - 0.5];
  const drawable = values.filter((v) => Number.isFinite(v) && (!spec.log || v > 0));
  if (!drawable.length) return spec.log ? [1, 10] : [0, 1];
  let low = Infinity, high = -Infinity; // values can be too many for Math.min(...)
  for (const value of drawable) { low = Math.min(low, value); high = Math.max(high, value); }
  if (spec.log) return [low / 1.3, high * 1.3];
  const margin = (high - low || Math.abs(high) || 1) * 0.05;
  return [spec.zero && low >= 0 ? 0 : low - margin, high + margin];
}

// The marked values as [value, text], so that texts of one line do not touch each other.
function ticksOf(axis, upright) {
  const length = Math.abs(axis.to - axis.from), [low, high] = axis.range;
  if (axis.categories) return axis.categories.map((name, i) => [i, name]);
  const within = ([value]) => value >= low * (1 - 1e-9) - 1e-300 && value <= high * (1 + 1e-9);
  const given = axis.ticks || (axis.log ? logTicks(low, high) : linearTicks(low, high, length / (upright ? 42 : 80)));
  return apartTicks(given.filter(within), axis, upright);
}

function apartTicks(ticks, axis, upright) {
  const kept = [];
  let last = -Infinity;
  for (const [value, text] of ticks) {
    const pixel = Math.abs(axis.at(value) - axis.from), half = upright ? 7 : (text.length * LETTER) / 2 + 4;
    if (pixel - half < last) continue;
    kept.push([value, text]);
    last = pixel + half;
  }
  return kept;
}

function linearTicks(low, high, most) {
  const rough = (high - low) / Math.max(2, most), power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((n) => n * power).find((s) => s >= rough * 0.8);
  const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
  const ticks = [];
  for (let n = Math.ceil(low / step - 1e-9); n * step <= high * (1 + 1e-12) + step * 1e-9; n++) ticks.push([n * step || 0, fixed(n * step || 0, digits)]); // no -0
  return ticks;
}

const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: Math.min(20, digits), maximumFractionDigits: Math.min(20, digits) });

// Powers of ten; over little more than one of them 2 and 5 times those too.
function logTicks(low, high) {
  const [first, last] = [Math.floor(Math.log10(low)), Math.ceil(Math.log10(high))];
  const digits = Math.log10(high / low) < 2.2 ? [1, 2, 5] : [1], every = Math.max(1, Math.ceil((last - first) / 8));
  const ticks = [];
  for (let power = first; power <= last; power += every) for (const digit of digits) ticks.push([Number(`${digit}e${power}`), powerText(digit, power)]);
  return ticks;
}

function powerText(digit, power) {
  if (power >= -3 && power < 3) return fixed(Number(`${digit}e${power}`), Math.max(0, -power));
  const thousands = Math.floor(power / 3) * 3;
  if (PREFIXES[thousands]) return `${digit * 10 ** (power - thousands)}${PREFIXES[thousands]}`;
  return `${digit === 1 ? "" : `${digit}·`}10${[...String(power)].map((c) => RAISED[c]).join("")}`;
}
