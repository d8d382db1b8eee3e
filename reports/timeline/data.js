// The binary columns of perfkit/render/timeline.py (docs/timeline-format.md), opened without copying.

const MAGIC = 0x4c544b50; // "PKTL", little endian
const VERSION = 1;
const ARRAYS = { float64: Float64Array, float32: Float32Array, int32: Int32Array, int16: Int16Array, uint8: Uint8Array };
const NEEDED = ["start", "duration", "name", "category", "family", "pass", "efficiency", "row", "launch"];

// Base64 of a gzip file, as a report embeds it → ArrayBuffer. Throws an Error with a sentence for anything else.
export async function unpack(text) {
  try {
    const packed = atob(text);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i++) bytes[i] = packed.charCodeAt(i);
    return await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
  } catch {
    throw new Error("The timeline's data is damaged: it cannot be unpacked.");
  }
}

// ArrayBuffer → the timeline: the header's fields, the columns by name, `end` (ns), `from` and `to` of all events.
// Throws an Error with a sentence for what is no timeline.
export function open(buffer) {
  const { header, base } = readHeader(buffer);
  const column = ([type, offset, count]) => new ARRAYS[type](buffer, base + offset, count);
  const data = { ...header, count: 0, mended: 0 };
  try {
    for (const name of NEEDED) data[name] = column(header.columns[name]);
    data.facts = header.facts.map((fact) => ({ ...fact, values: column(header.columns[fact.column]) }));
    data.ties = tiesIn(header, column);
    data.tracks = header.tracks.map(([lane, depth, first, count]) => ({ lane, depth, first, count }));
  } catch {
    throw new Error("The timeline's data is damaged: its columns do not fit the file.");
  }
  data.count = data.start.length;
  check(data);
  Object.assign(data, mend(data));
  return data;
}

function readHeader(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0, true) !== MAGIC) throw new Error("This is no timeline of perfkit.");
  const length = view.getUint32(4, true);
  if (8 + length > buffer.byteLength) throw new Error("The timeline's data is damaged: it is cut off.");
  let header;
  try {
    header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  } catch {
    throw new Error("The timeline's data is damaged: its header cannot be read.");
  }
  if (header.version !== VERSION) throw new Error("The timeline is of another version of perfkit than this page.");
  return { header, base: 8 + length };
}

// Who waits for whom: ties[k] is a late event and one on another rank that waits for it. None in a single rank's timeline.
function tiesIn(header, column) {
  const [from, to] = ["tie from", "tie to"].map((name) => (header.columns[name] ? column(header.columns[name]) : new Int32Array()));
  return { from, to, count: Math.min(from.length, to.length) };
}

function check(data) {
  const total = data.tracks.reduce((sum, t) => sum + (t.first === sum && t.count > 0 ? t.count : NaN), 0);
  const sound = total === data.count && NEEDED.every((name) => data[name].length === data.count)
    && [data.ties.from, data.ties.to].every((events) => events.every((i) => i >= 0 && i < data.count))
    && data.tracks.every((t) => data.lanes[t.lane] !== undefined && t.depth >= 0);
  if (!sound) throw new Error("The timeline's data is damaged: its tracks do not cover its events.");
}

// Ends, from starts that are finite and in order: a damaged time becomes an event without length where the one before
// ended, for every search relies on the order. `mended` counts them.
function mend(data) {
  const { start, duration, count } = data;
  const end = new Float64Array(count);
  let mended = 0, from = Infinity, to = -Infinity;
  for (const track of data.tracks) {
    let before = -Infinity;
    for (let i = track.first; i < track.first + track.count; i++) {
      if (!(start[i] >= before && start[i] < Infinity)) { start[i] = before === -Infinity ? 0 : before; mended++; }
      if (!(duration[i] >= 0 && duration[i] < Infinity)) { duration[i] = 0; mended++; }
      before = end[i] = start[i] + duration[i];
    }
    from = Math.min(from, start[track.first]);
    to = Math.max(to, before);
  }
  if (!(to > from)) [from, to] = count ? [from, from + 1] : [0, 1];
  return { end, mended, from, to };
}

// Name, category and lane of an event, and its facts that are known: [{name, unit, value}].
export const nameOf = (data, i) => data.names[data.name[i]] ?? "";
export const categoryOf = (data, i) => data.categories[data.category[i]] ?? "";

export function factsOf(data, i) {
  const row = data.row[i], known = [];
  if (row < 0) return known;
  for (const { name, unit, words, values } of data.facts) {
    const value = words ? words[values[row]] : values[row];
    if (value !== undefined && !Number.isNaN(value)) known.push({ name, unit, value });
  }
  return known;
}
