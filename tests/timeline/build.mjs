// Timelines as perfkit/render/timeline.py writes them, small and made by hand.

const TYPES = { start: Float64Array, duration: Float64Array, name: Int32Array, category: Uint8Array, family: Int16Array, pass: Int16Array, efficiency: Float32Array, row: Int32Array, launch: Int32Array };
const WORDS = { start: "float64", duration: "float64", name: "int32", category: "uint8", family: "int16", pass: "int16", efficiency: "float32", row: "int32", launch: "int32" };
const DEFAULTS = { start: 0, duration: 0, name: 0, category: 0, family: -1, pass: -1, efficiency: NaN, row: -1, launch: -1 };

// `lanes`: [{name, kind, tracks: [[event…]…]}], an event {start, duration, name: "word", …}.
export function build({ lanes, categories = ["cpu_op", "gpu_kernel", "pass", "step"], families = [], passes = [], facts = [], ...more }) {
  const names = [], events = [], tracks = [];
  lanes.forEach((lane, l) => lane.tracks.forEach((track, depth) => {
    tracks.push([l, depth, events.length, track.length]);
    for (const event of track) {
      if (!names.includes(event.name)) names.push(event.name);
      events.push({ ...DEFAULTS, ...event, name: names.indexOf(event.name), category: categories.indexOf(event.category ?? "cpu_op") });
    }
  }));
  const arrays = Object.fromEntries(Object.keys(TYPES).map((c) => [c, [WORDS[c], TYPES[c].from(events, (e) => e[c])]]));
  const described = facts.map(({ name, unit = "", words = null, values }, i) => {
    arrays[`fact ${i}`] = words ? ["int32", Int32Array.from(values)] : ["float64", Float64Array.from(values)];
    return { name, unit, words, column: `fact ${i}` };
  });
  return bytes({ version: 1, name: "test", measured: true, ceilings: "", notes: [], categories, families, passes, names, tracks, facts: described, lanes: lanes.map(({ name, kind }) => ({ name, kind })), ...more }, arrays);
}

function bytes(header, arrays) {
  const columns = {};
  let offset = 0;
  for (const [name, [type, values]] of Object.entries(arrays)) { columns[name] = [type, offset, values.length]; offset += Math.ceil(values.byteLength / 8) * 8; }
  let text = JSON.stringify({ ...header, columns });
  text += " ".repeat((8 - (new TextEncoder().encode(text).length % 8)) % 8);
  const head = new TextEncoder().encode(text), buffer = new ArrayBuffer(8 + head.length + offset);
  new Uint8Array(buffer).set(new TextEncoder().encode("PKTL"));
  new DataView(buffer).setUint32(4, head.length, true);
  new Uint8Array(buffer).set(head, 8);
  for (const [name, [, values]] of Object.entries(arrays)) new Uint8Array(buffer).set(new Uint8Array(values.buffer), 8 + head.length + columns[name][1]);
  return buffer;
}

// One thread with a call inside an operator that launches two kernels on a stream, and steps above them.
export const small = () => ({
  lanes: [
    { name: "steps and passes", kind: "spans", tracks: [[{ start: 0, duration: 1000, name: "step 0", category: "step" }], [{ start: 100, duration: 900, name: "forward", category: "pass", pass: 0 }]] },
    { name: "thread 1", kind: "thread", tracks: [[{ start: 0, duration: 400, name: "aten::linear" }, { start: 500, duration: 100, name: "aten::gelu" }], [{ start: 50, duration: 100, name: "launch" }, { start: 200, duration: 50, name: "launch" }, { start: 510, duration: 10, name: "launch" }]] },
    { name: "cuda:0 stream 7", kind: "stream", tracks: [[
      { start: 100, duration: 300, name: "gemm", category: "gpu_kernel", family: 0, pass: 0, efficiency: 0.5, row: 0, launch: 4 },
      { start: 400, duration: 100, name: "gemm", category: "gpu_kernel", family: 0, pass: 0, efficiency: 1, row: 1, launch: 5 },
      { start: 600, duration: 400, name: "gelu", category: "gpu_kernel", family: 1, pass: 0, launch: 6 }]] },
  ],
  families: ["matmul", "elementwise"], passes: ["forward"],
  facts: [{ name: "FLOP", unit: "FLOP", values: [2e9, NaN] }, { name: "module", words: ["h.0.mlp"], values: [0, -1] }],
});

// Numbers that look random and are the same in every run.
export function* random(seed = 1) {
  for (let state = seed >>> 0; ;) { state = (Math.imul(state, 1664525) + 1013904223) >>> 0; yield state / 2 ** 32; }
}
