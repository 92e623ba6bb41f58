// Answers to questions, as elements.

import { make, span, table, whole } from "./dom.js";
import { draw, OUT, podName } from "./cards.js";
import { STATES } from "./grid.js";
import { ASSUMED, EXCLUSIVE, TERMINATING, UNKNOWN_CARDS } from "./store.js";

const nodesOf = (count) => `${whole.format(count)} ${count === 1 ? "node" : "nodes"}`;

function reasons(groups) {
  const items = groups.map((group) => make("li", "", `${nodesOf(group.nodes)}: ${group.reason} (${group.rule})`,
    group.examples.length ? make("span", "hint", ` – ${group.examples.join(", ")}`) : null));
  return items.length ? [make("h3", "", "What blocks it"), make("ul", "", ...items)] : [];
}

function nearest(nodes) {
  if (!nodes.length) return [];
  return [make("h3", "", "Nearest to fitting"), ...nodes.flatMap((node) => {
    const why = node.rules.map((rule) => `${rule.reason}${rule.cause ? ` (${rule.cause})` : ""}`).join("; ");
    const cards = node.cards.map((card) => [`${card.index}`, `${card.free} of ${card.units}`, card.why || "would do",
      card.pods.map((pod) => `${pod.pod} ${pod.units}`).join(", ") || "–"]);
    const head = make("p", "", make("b", "", node.name), why ? `: ${why}` : "");
    const of = cards.length ? [table(`Cards of ${node.name}`, ["Card", "Free", "Why not", "Held by"], cards)] : [];
    return [head, ...of, ...sentence(node.remedy ? `What would help: ${node.remedy}.` : "")];
  })];
}

const sentence = (text) => (text ? [make("p", "", text)] : []);

/** Why a pod waits, and what would help. */
export function explained({ headline, underWay, preempting, answer }) {
  return [make("h3", "", answer.pod), make("p", answer.place ? "verdict" : "verdict no", headline),
    ...answer.words.flatMap(sentence), ...underWay.flatMap(sentence), ...sentence(answer.message),
    ...sentence(preempting), ...reasons(answer.reasons), ...nearest(answer.nearest)];
}

/** How many such pods would fit. */
export function fits(answer) {
  const stops = answer.next ? [make("h3", "", "What blocks the next copy"), ...sentence(answer.next.message), ...reasons(answer.next.reasons), ...nearest(answer.next.nearest)] : [];
  return [make("p", answer.places.length ? "verdict" : "verdict no", answer.headline), ...answer.words.flatMap(sentence),
    ...(answer.places.length ? [table("Where they would be", ["Node", "Cards", "Copies"], answer.places, [2])] : []), ...stops];
}

function flagsOf(flags) {
  const words = [[EXCLUSIVE, "alone"], [TERMINATING, "terminating"], [ASSUMED, "being bound"], [UNKNOWN_CARDS, "cards unknown"]];
  return words.filter(([bit]) => flags & bit).map(([, word]) => word).join(", ");
}

/** One node with its cards and the pods on them. */
export function node(detail, unit) {
  const bars = detail.cards.flatMap((card, slot) => {
    const parts = detail.pods.flatMap((pod) => pairs(pod.places).filter(([place]) => place === slot)
      .map(([, units]) => [units, pod.namespace, pod.name, pod.flags]));
    const bar = make("span");
    const title = `card ${card.index}: ${card.taken} of ${card.units} ${unit}`;
    draw(bar, { units: card.units, taken: card.taken, out: card.out, alone: parts.some((part) => part[3] & EXCLUSIVE), parts, width: 320, unit, title });
    const health = card.out ? `${OUT[card.out]}${card.reason ? ` (${card.reason})` : ""}` : "ready";
    return [make("h3", "", `Card ${card.index}: ${card.taken} of ${card.units} ${unit}`), make("div", "big", bar),
      make("p", "hint", `${card.model || "unknown model"} · ${health} · memory ${card.isolation} · `, make("code", "", card.uuid || "no UUID"))];
  });
  const pods = detail.pods.map((pod) => [podName(pod.namespace, pod.name),
    pairs(pod.places).map(([slot, units]) => `${units} on ${detail.cards[slot] ? detail.cards[slot].index : slot}`).join(", "), flagsOf(pod.flags) || "–"]);
  const state = [STATES[detail.state], detail.unschedulable ? "unschedulable" : "", detail.lost ? `${detail.lost} ${unit} held of cards that it does not announce` : ""].filter(Boolean);
  return [make("h2", "", detail.name), state.length ? make("p", "verdict no", state.join("; ")) : null,
    detail.problem ? make("p", "problem", detail.problem) : null, ...bars,
    pods.length ? table(`Pods on ${detail.name}`, ["Pod", `${unit} on card`, "State"], pods) : make("p", "hint", "No pod holds GPU memory here.")].filter(Boolean);
}

function pairs(flat) {
  const found = [];
  for (let at = 0; at < flat.length; at += 2) found.push([flat[at], flat[at + 1]]);
  return found;
}

/** What a waiting pod asks. */
export function wants(pod, unit) {
  if (pod.wrong) return "a wrong request";
  if (!pod.units) return "no GPU memory";
  return `${pod.cards > 1 ? `${pod.cards} × ` : ""}${pod.units} ${unit}${pod.exclusive ? " alone" : ""}${pod.isolated ? " enforced" : ""}`;
}

export const waits = (pod) => span(pod.waitedS);
