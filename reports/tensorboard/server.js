// What the page asks of the plugin. Large files take a while: the plugin answers at once, and is asked again.

const AGAIN_MS = [40, 300]; // until it is asked again, at first and at most

class Failed extends Error {}

// Where the plugin's routes are; the document's own address is TensorBoard's.
const at = (name) => new URL(name, import.meta.url).href;
const route = (name, parameters) => `${at(name)}?${new URLSearchParams(parameters)}`;

// The answer to `name`: JSON, or bytes where `binary`. While it is being made `onProgress` is told how far it is;
// `wanted()` says whether anyone still waits. Throws `Failed` with a sentence for a person.
async function ask(name, parameters, { onProgress = () => {}, wanted = () => true, binary = false } = {}) {
  for (let wait = AGAIN_MS[0]; ; wait = Math.min(2 * wait, AGAIN_MS[1])) {
    const response = await fetch(route(name, parameters)).catch(() => { throw new Failed("TensorBoard does not answer. Is it still running?"); });
    if (!wanted()) return null;
    const made = response.ok && response.status !== 202;
    if (made && binary && response.headers.get("Content-Type").includes("octet-stream")) return response.arrayBuffer();
    const answer = await response.json().catch(() => { throw new Failed(`TensorBoard answered with ${response.status}.`); });
    if (answer.state === "failed") throw new Failed([answer.message, answer.hint].filter(Boolean).join(" "));
    if (made) return answer;
    onProgress(answer);
    await new Promise((resolve) => setTimeout(resolve, wait));
    if (!wanted()) return null;
  }
}
