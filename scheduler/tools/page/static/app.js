// The page: what comes over the stream goes to the store, and from there to what is in sight.

import { line, percent } from "./charts.js";
import { byId, button, make, setText, whole } from "./dom.js";
import { Grid } from "./grid.js";
import { Side } from "./side.js";
import { chosen, Store } from "./store.js";
import { ask, follow, useInstance } from "./stream.js";

const ORDER_EVERY_MS = 1000, TYPED_MS = 120, HISTORY_EVERY_MS = 15000, MOST_ASKED = 100, NODE_EVERY_MS = 1000, AGAIN_MS = 1000;
const store = new Store(), side = new Side();
let unit = "units", listed = null, loading = null, orderDue = 0, waiting = 0, nodeDue = 0, drawn = false;
let points = [], askedAt = 0, shareDrawn = -1;
const asking = new Set();
const grid = new Grid({ onOpen: (node) => side.showNode(node.name), onSight: askPods });

function filter() {
  return { text: byId("search").value, show: byId("show").value, order: byId("order").value };
}

function relist() {
  let nodes = chosen(store, filter());
  // Names of pods are asked of the scheduler; nodes are found here.
  if (!nodes.length && listed) nodes = [...store.nodes.values()].filter((node) => listed.has(node.name));
  grid.show(nodes);
  const all = filter().show === "all" ? store.nodes.size : store.withCards;
  setText(byId("found-nodes"), `${whole.format(nodes.length)} of ${whole.format(all)} nodes`);
  orderDue = performance.now() + ORDER_EVERY_MS;
}

const bookedShare = () => (store.sums.units ? store.sums.booked / store.sums.units : 0);

/** The line of the memory booked. Its last point is what the tile says: the one that was asked for is older. */
function drawBooked() {
  if (!points.length) return;
  const last = points[points.length - 1];
  const now = { ...last, ...store.sums, atS: last.atS + Math.round((performance.now() - askedAt) / 1000) };
  shareDrawn = bookedShare();
  line(byId("chart-booked"), [...points.slice(0, -1), now], (point) => (point.units ? point.booked / point.units : 0), "Memory booked");
}

function sums() {
  const { units, booked, cards, used, out } = store.sums;
  const share = bookedShare();
  if (share !== shareDrawn) drawBooked();
  const tile = (id, number, more) => {
    const text = `${number}${more}`;
    if (byId(id).textContent !== text) byId(id).replaceChildren(number, make("small", "", more));
  };
  tile("sum-booked", percent(share), ` ${whole.format(booked)} of ${whole.format(units)} ${unit}`);
  tile("sum-cards", whole.format(used), ` of ${whole.format(cards)}`);
  tile("sum-out", whole.format(out), "");
  byId("tile-out").classList.toggle("alarm", out > 0);
  tile("sum-nodes", whole.format(store.withCards), ` with cards, ${whole.format(store.nodes.size)} in all`);
  tile("sum-waiting", whole.format(waiting), "");
}

/** What changed, on the screen: rows in sight at once, the order of all of them now and then. */
function show(rows) {
  const nodeOf = new Map(rows.map((row) => [row, store.nodes.get(row)]).filter(([, node]) => node));
  const known = rows.every((row) => store.nodes.has(row)) && grid.nodes.length > 0;
  if (!known || performance.now() > orderDue) relist();
  else grid.update(nodeOf);
  sums();
  const open = side.node && rows.some((row) => store.nodes.get(row)?.name === side.node);
  if (open && performance.now() > nodeDue && !byId("panel-node").hidden) {
    nodeDue = performance.now() + NODE_EVERY_MS;
    side.showNode(side.node, { again: true });
  }
}

async function askPods(rows) {
  // While another process sends its rows, those that it has not sent yet are of the one before.
  const wanted = rows.filter((row) => !asking.has(row) && (!loading || loading.has(row))).slice(0, MOST_ASKED);
  if (!wanted.length) return;
  wanted.forEach((row) => asking.add(row));
  const { instance } = store;
  const done = () => {
    if (instance !== store.instance) return;
    wanted.forEach((row) => asking.delete(row));
    grid.later();
  };
  try {
    const found = await ask("/api/pods", { rows: wanted.join(",") });
    // The rows of another process are others.
    if (instance !== store.instance) return;
    for (const [row, pods] of Object.entries(found)) {
      const node = store.nodes.get(Number(row));
      if (node && !node.on) node.on = pods;
    }
    done();
  } catch { setTimeout(done, AGAIN_MS); /* the stream says what is wrong */ }
}

const takers = {
  begin(message) {
    loading = message.whole ? new Set() : null;
    if (message.instance !== store.instance) asking.clear();
    store.instance = message.instance;
    useInstance(message.instance);
    unit = side.unit = grid.unit = message.unit;
    document.querySelectorAll(".unit").forEach((element) => setText(element, unit));
    setText(byId("head-use"), `Booked, ${unit}`);
    byId("cluster").hidden = false;
  },
  rows(message) {
    const rows = store.take(message);
    if (loading) {
      rows.forEach((row) => loading.add(row));
      if (!drawn) { drawn = true; relist(); }
      return;
    }
    show(rows);
  },
  ready(message) {
    store.version = message.version;
    if (!loading) return;
    store.keepOnly(loading);
    loading = null;
    relist();
    sums();
    document.body.dataset.ready = "true";
    history();
  },
  now({ problem }) {
    state("live", "live");
    byId("problem").hidden = !problem;
    setText(byId("problem"), problem ? `This may be out of date: ${problem}` : "");
  },
  waiting(message) {
    waiting = side.waiting(message);
    sums();
  },
};

function take(message) {
  if (message.version !== undefined && !loading) store.version = message.version;
  takers[message.t]?.(message);
}

function state(name, words) {
  const status = byId("status");
  if (status.dataset.state !== name) status.dataset.state = name;
  setText(status, words);
}

async function history() {
  try {
    points = await ask("/api/history");
    askedAt = performance.now();
    drawBooked();
    line(byId("chart-fragmented"), points, (point) => point.fragmented, "Free memory that is fragmented");
  } catch { /* the stream says what is wrong */ }
}

async function findPods(text) {
  const list = byId("found-pods");
  let found = [];
  try {
    found = text.length > 1 ? await ask("/api/find", { text }) : [];
  } catch { /* as above */ }
  if (text !== byId("search").value.trim()) return;
  listed = found.length ? new Set(found.map((pod) => pod.node)) : null;
  list.hidden = !found.length;
  list.replaceChildren(...found.map((pod) => make("li", "",
    button(`${pod.namespace}/${pod.name}`, () => side.showNode(pod.node)), ` on ${pod.node}`)));
  relist();
}

function wire() {
  let typed = 0;
  byId("search").addEventListener("input", () => {
    relist();
    clearTimeout(typed);
    typed = setTimeout(() => findPods(byId("search").value.trim()), TYPED_MS * 3);
  });
  byId("show").addEventListener("change", relist);
  byId("order").addEventListener("change", relist);
  document.querySelectorAll(".what").forEach((what) => what.addEventListener("click", () => {
    const help = byId(what.getAttribute("aria-controls"));
    help.hidden = !help.hidden;
    what.setAttribute("aria-expanded", String(!help.hidden));
  }));
  setInterval(() => { if (!document.hidden && drawn) history(); }, HISTORY_EVERY_MS);
}

function since() {
  return store.instance ? { instance: store.instance, version: store.version, models: store.models.length } : {};
}

wire();
state("connecting", "connecting");
follow({ since, take, lost: (words) => state("lost", words) });
