// The cluster as this page knows it: nodes by row, their cards, sums over all of them.

const COLUMNS = ["units", "taken", "out", "pods", "alone", "model"];
const compared = new Intl.Collator("en", { numeric: true }).compare;
const NOTHING = { units: 0, booked: 0, cards: 0, used: 0, out: 0 };
export const EXCLUSIVE = 1, TERMINATING = 2, ASSUMED = 4, UNKNOWN_CARDS = 8;

export class Store {
  constructor() {
    this.nodes = new Map(); // row -> node
    this.models = [""];
    this.version = -1;
    this.instance = "";
    this.sums = { ...NOTHING };
    this.withCards = 0;
    this.rows = null; // by name; null when nodes have come or gone since
  }

  /** Take over a message of rows; returns the rows that changed. */
  take(message) {
    if (message.models) this.models = message.models;
    let at = 0;
    message.row.forEach((row, place) => {
      const count = message.cards[place];
      const node = { row, name: message.name[place], state: message.state[place], pods: null };
      for (const column of COLUMNS) node[`${column}Of`] = message[column].slice(at, at + count);
      at += count;
      node.cards = count;
      node.total = (message.total && message.total[row]) || count;
      node.on = (message.on && message.on[row]) || null;
      this.#replace(node, measured(node, this.models));
    });
    return message.row;
  }

  /** After the cluster was sent as a whole: rows that were not among it are gone. */
  keepOnly(rows) {
    for (const row of [...this.nodes.keys()]) if (!rows.has(row)) this.#remove(row);
  }

  /** All nodes by name. Comparing 5,000 names takes long enough to be seen: their order is kept. */
  inOrder() {
    if (!this.rows) this.rows = [...this.nodes.values()].sort((one, other) => compared(one.name, other.name)).map((node) => node.row);
    return this.rows.map((row) => this.nodes.get(row));
  }

  byName(name) {
    for (const node of this.nodes.values()) if (node.name === name) return node;
    return null;
  }

  #replace(node, sums) {
    const rows = this.nodes.get(node.row)?.name === node.name ? this.rows : null;
    this.#remove(node.row);
    this.rows = rows;
    if (!node.name) return;
    node.sums = sums;
    this.nodes.set(node.row, node);
    for (const key of Object.keys(NOTHING)) this.sums[key] += sums[key];
    this.withCards += node.cards > 0 ? 1 : 0;
  }

  #remove(row) {
    const old = this.nodes.get(row);
    if (!old) return;
    this.rows = null;
    this.nodes.delete(row);
    for (const key of Object.keys(NOTHING)) this.sums[key] -= old.sums[key];
    this.withCards -= old.cards > 0 ? 1 : 0;
  }
}

function measured(node, models) {
  const sums = { ...NOTHING, freest: 0, held: 0 };
  for (let card = 0; card < node.cards; card += 1) {
    const units = node.unitsOf[card], taken = node.takenOf[card];
    sums.cards += 1;
    sums.held += node.podsOf[card];
    sums.used += node.podsOf[card] > 0 ? 1 : 0;
    if (node.outOf[card]) {
      sums.out += 1;
    } else {
      sums.units += units;
      sums.booked += Math.min(taken, units);
      if (!node.aloneOf[card]) sums.freest = Math.max(sums.freest, units - taken);
    }
  }
  node.text = `${node.name} ${[...new Set(node.modelOf)].map((code) => models[code] || "").join(" ")}`.toLowerCase();
  return sums;
}

const SHOWN = {
  all: () => true,
  cards: (node) => node.cards > 0 || node.state > 1,
  free: (node) => node.state === 1 && node.sums.freest > 0,
  out: (node) => node.sums.out > 0 || node.state > 1,
  idle: (node) => node.cards > 0 && node.sums.held === 0,
};
const BY = {
  full: (node) => -(node.sums.units ? node.sums.booked / node.sums.units : -1),
  free: (node) => -(node.sums.units - node.sums.booked),
  card: (node) => -node.sums.freest,
};

/** The nodes to show, in order. */
export function chosen(store, { text, show, order }) {
  const wanted = text.trim().toLowerCase().split(/\s+/).filter(Boolean);
  const found = store.inOrder().filter((node) => SHOWN[show](node) && wanted.every((word) => node.text.includes(word)));
  const key = BY[order];
  // A sort keeps the order of equals: by name.
  return key ? found.sort((one, other) => key(one) - key(other)) : found;
}
