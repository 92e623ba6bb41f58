// One card as a bar, with the pods on it.

import { make, setText } from "./dom.js";
import { EXCLUSIVE, TERMINATING, ASSUMED } from "./store.js";

// As scheduler/state/cards/node_inventory.py: Out.
export const OUT = ["ready", "unhealthy", "suspect", "listed as unhealthy", "cordoned", "its UUID is announced twice"];
const LOOKS = ["", "bad", "warn", "bad", "off", "bad"];
const SIGNS = { bad: "✕", warn: "!", off: "⊘", lone: "◆" };
const HUES = [210, 150, 35, 280, 0, 185, 95, 325];
const READABLE_PX = 34;

const hues = new Map();
/** The same namespace has the same colour for as long as the page is open. */
export function hue(namespace) {
  if (!hues.has(namespace)) hues.set(namespace, HUES[hues.size % HUES.length]);
  return hues.get(namespace);
}

/** Segments of each card: [units, namespace, name or null, flags]. What is not known by pod is one segment. */
export function segments(node) {
  const cards = Array.from({ length: node.cards }, () => []);
  for (const [namespace, name, places, flags] of node.on || []) {
    for (let at = 0; at < places.length; at += 2) {
      if (cards[places[at]]) cards[places[at]].push([places[at + 1], namespace, name, flags]);
    }
  }
  return cards.map((known, card) => {
    const left = node.takenOf[card] - known.reduce((sum, [units]) => sum + units, 0);
    return left > 0 ? [...known, [left, "", null, 0]] : known;
  });
}

export const podName = (namespace, name) => (name === null ? "not loaded yet" : `${namespace}/${name}`);

/** In words, for whoever does not see the bars. */
export function told(node, unit) {
  const cards = [];
  for (let card = 0; card < node.cards; card += 1) {
    const pods = node.podsOf[card];
    const words = [`${card}: ${node.takenOf[card]} of ${node.unitsOf[card]} ${unit}`, `${pods} ${pods === 1 ? "pod" : "pods"}`];
    if (node.outOf[card]) words.push(OUT[node.outOf[card]]);
    if (node.aloneOf[card]) words.push("held by one pod alone");
    cards.push(words.join(", "));
  }
  const more = node.total > node.cards ? `; and ${node.total - node.cards} more` : "";
  return `${node.cards === 1 ? "Card" : "Cards"} ${cards.join("; ")}${more}`;
}

/** Make `bar` show a card; the elements that are there are used again. width: of the bar, in pixels. */
export function draw(bar, { units, taken, out, alone, parts, width, unit, title }) {
  const look = LOOKS[out] || (alone ? "lone" : "");
  const shown = `card ${look}`;
  if (bar.className !== shown) bar.className = shown;
  if (bar.title !== title) bar.title = title;
  const whole = Math.max(units, taken, 1);
  const sign = SIGNS[look] || "";
  const wanted = parts.length + (sign ? 1 : 0);
  while (bar.childElementCount > wanted) bar.lastElementChild.remove();
  while (bar.childElementCount < wanted) bar.append(make("span"));
  parts.forEach(([amount, namespace, name, flags], place) => {
    const element = bar.children[place];
    const share = amount / whole, readable = name !== null && share * width >= READABLE_PX;
    const looks = `seg${name === null ? " anon" : ""}${readable ? "" : " tight"}${flags & TERMINATING ? " leaving" : ""}${flags & ASSUMED ? " coming" : ""}`;
    if (element.className !== looks) element.className = looks;
    element.style.width = `${(100 * share).toFixed(2)}%`;
    if (name !== null) element.style.setProperty("--hue", hue(namespace));
    setText(element, readable ? name : "");
    const said = `${podName(namespace, name)}: ${amount} ${unit}${flags & EXCLUSIVE ? ", alone" : ""}`;
    if (element.title !== said) element.title = said;
  });
  if (sign) {
    const element = bar.lastElementChild;
    element.className = "sign";
    element.removeAttribute("style");
    element.title = "";
    setText(element, sign);
  }
}
