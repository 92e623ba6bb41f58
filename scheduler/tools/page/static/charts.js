// Lines of the last hours, in SVG made by hand: they are small, and need no axis but their words.

const SVG = "http://www.w3.org/2000/svg";
const WIDTH = 200, HEIGHT = 36;

function shape(name, attributes) {
  const element = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

export const percent = (share) => `${Math.round(100 * share)} %`;
const minutes = (points) => Math.round((points[points.length - 1].atS - points[0].atS) / 60);

/** Shares from 0 to 1 over time, in `into`. */
export function line(into, points, shareOf, what) {
  const shares = points.map(shareOf);
  const first = points[0].atS, length = Math.max(1, points[points.length - 1].atS - first);
  const at = (point, place) => `${((WIDTH * (point.atS - first)) / length).toFixed(1)},${(HEIGHT * (1 - shares[place])).toFixed(1)}`;
  const drawn = points.length > 1 ? points.map(at) : [`0,${HEIGHT * (1 - shares[0])}`, `${WIDTH},${HEIGHT * (1 - shares[0])}`];
  const lowest = Math.min(...shares), highest = Math.max(...shares), now = shares[shares.length - 1];
  const words = `${what}: ${percent(now)} now; ${percent(lowest)} to ${percent(highest)} in the last ${Math.max(1, minutes(points))} minutes`;
  const svg = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": words });
  svg.append(shape("polygon", { class: "area", points: `0,${HEIGHT} ${drawn.join(" ")} ${WIDTH},${HEIGHT}` }), shape("polyline", { class: "line", points: drawn.join(" ") }));
  const caption = document.createElement("p");
  caption.className = "hint";
  caption.textContent = `${percent(now)} · ${percent(lowest)} to ${percent(highest)} in ${Math.max(1, minutes(points))} min`;
  into.replaceChildren(svg, caption);
}
