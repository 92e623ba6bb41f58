// The list of nodes: only the rows in sight are elements, whatever the number of nodes.

import { byId, make, setAttribute, setText, whole } from "./dom.js";
import { draw, OUT, segments, told } from "./cards.js";

const ROW_PX = 40, BEYOND = 4, MOST_BARS = 16;
export const STATES = ["no cards", "", "inventory unreadable", "other memory unit", "nothing allocatable", "not registered", "no way into containers"];

export class Grid {
  /** onOpen(node): Enter or a click. onSight(rows): rows in sight whose pods are not known. */
  constructor({ onOpen, onSight }) {
    this.grid = byId("nodes");
    this.scroller = byId("rows");
    this.canvas = byId("canvas");
    this.nodes = [];
    this.unit = "units";
    this.active = 0;
    this.chosen = "";
    this.elements = new Map(); // place in the list -> element
    this.spare = [];
    this.onOpen = onOpen;
    this.onSight = onSight;
    this.width = 600;
    let asked = false;
    this.later = () => {
      if (asked) return;
      asked = true;
      requestAnimationFrame(() => { asked = false; this.draw(); });
    };
    this.scroller.addEventListener("scroll", this.later, { passive: true });
    new ResizeObserver(() => { this.measure(); this.later(); }).observe(this.scroller);
    this.grid.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("click", (event) => this.click(event));
    this.grid.addEventListener("focus", () => this.focus());
  }

  measure() {
    this.height = this.scroller.clientHeight;
    const cards = this.canvas.querySelector(".cell.cards");
    this.width = (cards ? cards.clientWidth : this.scroller.clientWidth - 310) - 16;
  }

  show(nodes) {
    const before = this.nodes[this.active];
    this.nodes = nodes;
    const place = before ? nodes.findIndex((node) => node.row === before.row) : 0;
    this.active = Math.max(0, place >= 0 ? place : Math.min(this.active, nodes.length - 1));
    this.canvas.style.height = `${nodes.length * ROW_PX}px`;
    setAttribute(this.grid, "aria-rowcount", nodes.length + 1);
    this.draw();
  }

  /** These nodes have other cards now; drawn in this very frame where they are in sight. */
  update(nodeOf) {
    this.nodes = this.nodes.map((node) => nodeOf.get(node.row) || node);
    this.draw();
  }

  draw() {
    if (!this.height) this.measure();
    const first = Math.max(0, Math.floor(this.scroller.scrollTop / ROW_PX) - BEYOND);
    const last = Math.min(this.nodes.length, Math.ceil((this.scroller.scrollTop + this.height) / ROW_PX) + BEYOND);
    const keep = (place) => (place >= first && place < last) || place === this.active;
    for (const [place, element] of this.elements) {
      if (!keep(place) || place >= this.nodes.length) {
        this.elements.delete(place);
        element.hidden = true;
        this.spare.push(element);
      }
    }
    const unknown = [];
    for (let place = first; place < last; place += 1) this.row(place, unknown);
    if (this.nodes.length && !(this.active >= first && this.active < last)) this.row(this.active, unknown);
    if (unknown.length) this.onSight(unknown);
  }

  row(place, unknown) {
    const node = this.nodes[place];
    let element = this.elements.get(place);
    if (!element) {
      element = this.spare.pop() || this.made();
      element.hidden = false;
      this.elements.set(place, element);
      element.style.transform = `translateY(${place * ROW_PX}px)`;
      setAttribute(element, "aria-rowindex", place + 2);
    }
    if (!node.on && node.sums.held) unknown.push(node.row);
    element.place = place;
    element.tabIndex = place === this.active ? 0 : -1;
    setAttribute(element, "aria-selected", node.name === this.chosen);
    if (element.drawn === node && element.drawnOn === node.on && element.drawnWidth === this.width) return;
    element.drawn = node;
    element.drawnOn = node.on;
    element.drawnWidth = this.width;
    const [name, use, cards] = element.children;
    setText(name, node.name);
    name.title = node.name;
    setText(use, node.state > 1 || !node.cards ? STATES[node.state] : `${whole.format(node.sums.booked)} / ${whole.format(node.sums.units)}`);
    setAttribute(cards, "aria-label", node.cards ? told(node, this.unit) : "no cards");
    this.bars(cards, node);
  }

  bars(cell, node) {
    const count = Math.min(node.cards, MOST_BARS), more = node.total - count;
    const wanted = count + (more ? 1 : 0);
    while (cell.childElementCount > wanted) cell.lastElementChild.remove();
    while (cell.childElementCount < wanted) cell.append(make("span"));
    const parts = segments(node), width = Math.min(320, this.width / Math.max(count, 1) - 4);
    for (let card = 0; card < count; card += 1) {
      const units = node.unitsOf[card], taken = node.takenOf[card], out = node.outOf[card];
      const title = `card ${card}: ${taken} of ${units} ${this.unit}${out ? `, ${OUT[out]}` : ""}`;
      draw(cell.children[card], { units, taken, out, alone: node.aloneOf[card], parts: parts[card], width, unit: this.unit, title });
    }
    if (more) {
      const element = cell.lastElementChild;
      element.className = "more";
      element.replaceChildren(`+${more}`);
    }
  }

  made() {
    const element = make("div", "row", make("span", "cell name"), make("span", "cell use"), make("span", "cell cards"));
    element.setAttribute("role", "row");
    element.children[0].setAttribute("role", "rowheader");
    element.children[1].setAttribute("role", "gridcell");
    element.children[2].setAttribute("role", "gridcell");
    this.canvas.append(element);
    return element;
  }

  click(event) {
    const element = event.target.closest(".row");
    if (element && this.nodes[element.place]) this.go(element.place, { open: true });
  }

  key(event) {
    const page = Math.max(1, Math.floor(this.height / ROW_PX) - 1), end = this.nodes.length - 1;
    const to = { ArrowDown: this.active + 1, ArrowUp: this.active - 1, PageDown: this.active + page, PageUp: this.active - page, Home: 0, End: end }[event.key];
    if (event.altKey || event.metaKey || !this.nodes.length) return;
    if (to !== undefined) this.go(Math.min(end, Math.max(0, to)), {});
    else if (event.key === "Enter" || event.key === " ") this.go(this.active, { open: true });
    else return;
    event.preventDefault();
  }

  go(place, { open }) {
    this.active = place;
    const top = place * ROW_PX, view = this.scroller;
    if (top < view.scrollTop) view.scrollTop = top;
    else if (top + ROW_PX > view.scrollTop + this.height) view.scrollTop = top + ROW_PX - this.height;
    if (open) this.chosen = this.nodes[place].name;
    this.draw();
    this.focus();
    if (open) this.onOpen(this.nodes[place]);
  }

  focus() {
    const element = this.elements.get(this.active);
    if (element) element.focus({ preventScroll: true });
  }
}
