// Scales, as perfkit/units.py and perfkit/render/cells.py choose them: one a column, absent values as a dash.

const ABSENT = "–";

const known = (value) => typeof value === "number" && Number.isFinite(value);

function scaleFor(values, unitName) {
  const sizes = values.filter(known).map(Math.abs);
  const largest = Math.max(0, ...sizes);
  const ladder = LADDERS[unitName];
  let [factor, suffix] = ladder[0];
  for (const [f, s] of ladder) if (largest >= f) [factor, suffix] = [f, s];
  if (unitName === "count") return { factor, suffix, digits: 0 };
  if (unitName === "%") return { factor: ladder[0][0], suffix, digits: 1 };
  const top = largest / factor;
  const whole = factor === 1 && ["ns", "B", "iB", ""].includes(unitName) && top >= 10;
  return { factor, suffix, digits: whole ? 0 : top >= 1000 ? 0 : top >= 100 ? 1 : 2 };
}

// For times that span more than a factor of four a step finer, so that small ones show.
function columnScale(values, unitName) {
  const sizes = values.filter((v) => known(v) && v !== 0).map(Math.abs);
  const scale = scaleFor(sizes, unitName);
  const largest = Math.max(0, ...sizes);
  if (unitName !== "ns" || !sizes.length || Math.min(...sizes) >= largest / 4) return scale;
  const finer = scaleFor([largest / 10], unitName);
  return { ...finer, digits: finer.factor === 1 ? 0 : largest / finer.factor >= 10 ? 1 : 2 };
}

const NOTHING = /^-?[0.,]+$/; // what a small value rounds to

// What is too small for the scale is "< 0.1"; a limit, which the truth may exceed, "≥ 9.69".
function number(value, scale, isLimit = false) {
  if (!known(value)) return ABSENT;
  const rounded = (v) => (v / scale.factor).toLocaleString("en-US", { minimumFractionDigits: scale.digits, maximumFractionDigits: scale.digits });
  const text = rounded(value);
  if (value === 0) return text;
  if (!NOTHING.test(text)) return isLimit ? `≥ ${text}` : text;
  const least = rounded(10 ** -scale.digits * scale.factor);
  return isLimit ? "> 0" : value > 0 ? `< ${least}` : `> -${least}`;
}

// Whether a sum over kernels that take the time `some` is a lower limit of that over all: `in_part` of perfkit/render/cells.py.
const inPart = (some, whole) => some < 0.99 * whole;
const limit = (value, unitName, isLimit) => (isLimit && value ? `≥ ${amount(value, unitName)}` : amount(value, unitName));

function withUnit(value, scale) {
  const text = number(value, scale);
  if (text === ABSENT || !scale.suffix) return text;
  return "%×".includes(scale.suffix) ? text + scale.suffix : `${text} ${scale.suffix}`;
}

const amount = (value, unitName) => withUnit(value, scaleFor([value], unitName));
const percent = (value, digits = 1) => (known(value) ? `${number(100 * value, { factor: 1, digits })}%` : ABSENT);
const relativeError = (value) => (known(value) ? value.toExponential(1) : ABSENT);
