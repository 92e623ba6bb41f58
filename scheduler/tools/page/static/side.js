// The side panel: pods that wait and why, what-if, one node.

import { byId, button, make, setAttribute, setText, whole } from "./dom.js";
import { explained, fits, node as nodeElements, waits, wants } from "./answers.js";
import { ask } from "./stream.js";

const TABS = ["waiting", "what-if", "node"];
const QUEUES = { waiting: "waiting", unschedulable: "fit nowhere", gated: "gated" };

export class Side {
  constructor() {
    this.unit = "units";
    this.rows = new Map(); // namespace/name -> row of the table
    this.asked = "";
    this.node = "";
    TABS.forEach((name, place) => {
      byId(`tab-${name}`).addEventListener("click", () => this.open(name));
      byId(`tab-${name}`).addEventListener("keydown", (event) => {
        const to = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: TABS.length - 1 }[event.key];
        if (to === undefined) return;
        event.preventDefault();
        this.open(TABS[(to + TABS.length) % TABS.length]);
        byId(`tab-${TABS[(to + TABS.length) % TABS.length]}`).focus();
      });
    });
    byId("what-if-form").addEventListener("submit", (event) => { event.preventDefault(); this.whatIf(event.target); });
  }

  open(name) {
    for (const one of TABS) {
      const chosen = one === name;
      setAttribute(byId(`tab-${one}`), "aria-selected", chosen);
      byId(`tab-${one}`).tabIndex = chosen ? 0 : -1;
      byId(`panel-${one}`).hidden = !chosen;
    }
  }

  waiting(message) {
    const counts = Object.entries(message.counts).filter(([, count]) => count);
    const all = counts.reduce((sum, [, count]) => sum + count, 0);
    setText(byId("tab-waiting"), `Waiting ${whole.format(all)}`);
    const words = counts.map(([queue, count]) => `${whole.format(count)} ${QUEUES[queue] || queue}`).join(", ");
    const cut = message.pods.length < all && message.pods.length ? ` The first ${message.pods.length}:` : "";
    setText(byId("waiting-counts"), all ? `${words}.${cut}` : "No pod is waiting.");
    byId("waiting-table").hidden = !message.pods.length;
    this.list(message.pods);
    return all;
  }

  list(pods) {
    const body = byId("waiting"), seen = new Set();
    pods.forEach((pod, place) => {
      const key = `${pod.namespace}/${pod.name}`;
      seen.add(key);
      let row = this.rows.get(key);
      if (!row) {
        row = make("tr", "", make("td", "", button(key, () => this.why(pod))), make("td"), make("td"), make("td", "number"));
        this.rows.set(key, row);
      }
      if (body.children[place] !== row) body.insertBefore(row, body.children[place] || null);
      setText(row.children[1], wants(pod, this.unit));
      setText(row.children[2], pod.state);
      setText(row.children[3], waits(pod));
      if (key === this.asked) setAttribute(row, "aria-current", "true");
      else row.removeAttribute("aria-current");
    });
    for (const [key, row] of this.rows) {
      if (!seen.has(key)) { row.remove(); this.rows.delete(key); }
    }
  }

  async why({ namespace, name }) {
    this.asked = `${namespace}/${name}`;
    for (const [key, row] of this.rows) {
      if (key === this.asked) setAttribute(row, "aria-current", "true");
      else row.removeAttribute("aria-current");
    }
    await this.answer("why", () => ask("/api/explain", { namespace, name }), explained, () => this.asked === `${namespace}/${name}`);
  }

  async whatIf(form) {
    const asked = Object.fromEntries(new FormData(form));
    await this.answer("what-if", () => ask("/api/what-if", asked), fits, () => true);
  }

  async showNode(name, { again = false } = {}) {
    this.node = name;
    if (!again) this.open("node");
    await this.answer("node", () => ask("/api/node", { name }), (detail) => nodeElements(detail, this.unit), () => this.node === name);
  }

  /** Ask, and show the answer, unless something else was asked meanwhile. */
  async answer(place, question, elements, wanted) {
    let shown;
    try {
      shown = elements(await question());
    } catch (error) {
      shown = [make("p", "verdict no", error.message)];
    }
    if (wanted()) byId(place).replaceChildren(...shown);
  }
}
