// Follows the cluster by a streamed fetch.

// Of the process that the page follows: its questions are for the same one.
let instance = "";
export const useInstance = (text) => { instance = text; };

const SHORTEST_MS = 500, LONGEST_MS = 10000;
const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

class Refusal extends Error {}

async function refusal(answer) {
  let words = `The page's server answers ${answer.status}.`;
  try { words = (await answer.json()).error || words; } catch { /* not ours */ }
  return new Refusal(words);
}

/** One question; throws an error with the words of a refusal. */
export async function ask(path, parameters = {}) {
  const query = new URLSearchParams({ ...parameters, ...(instance ? { instance } : {}) });
  const answer = await fetch(`${path}?${query}`, { cache: "no-store" });
  if (!answer.ok) throw await refusal(answer);
  return answer.json();
}

/** Follow without end. since(): what is known already. take(message). lost(words): between two tries. */
export async function follow({ since, take, lost }) {
  let wait = SHORTEST_MS;
  for (;;) {
    if (document.hidden) await visible();
    try {
      await once(since(), take);
      wait = SHORTEST_MS;
      continue;
    } catch (error) {
      lost(error instanceof Refusal ? error.message : "no answer; trying again");
    }
    await pause(wait * (0.75 + Math.random() / 2));
    wait = Math.min(LONGEST_MS, wait * 2);
  }
}

const visible = () => new Promise((resolve) => {
  const look = () => {
    if (document.hidden) return;
    document.removeEventListener("visibilitychange", look);
    resolve();
  };
  document.addEventListener("visibilitychange", look);
});

/** One answer, to its end. A page that nobody looks at lets go of it. */
async function once(since, take) {
  const leaving = new AbortController();
  const hide = () => { if (document.hidden) leaving.abort(); };
  document.addEventListener("visibilitychange", hide);
  try {
    const path = `/api/stream?${new URLSearchParams(since)}`;
    const answer = await fetch(path, { cache: "no-store", signal: leaving.signal });
    if (!answer.ok) throw await refusal(answer);
    await lines(answer.body.getReader(), take);
  } catch (error) {
    if (!leaving.signal.aborted) throw error;
  } finally {
    document.removeEventListener("visibilitychange", hide);
  }
}

async function lines(reader, take) {
  const decoder = new TextDecoder();
  let rest = [];
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const pieces = decoder.decode(value, { stream: true }).split("\n");
    while (pieces.length > 1) {
      rest.push(pieces.shift());
      const line = rest.join("");
      rest = [];
      if (line) take(JSON.parse(line));
    }
    rest.push(pieces[0]);
  }
}
