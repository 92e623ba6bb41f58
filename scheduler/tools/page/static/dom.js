// Elements are made here, and here alone: text is only ever text.

export const byId = (id) => document.getElementById(id);

/** An element with a class, and children: elements, or what becomes text. */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** Text that is not written again where it stands already. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function setAttribute(element, name, value) {
  if (element.getAttribute(name) !== String(value)) element.setAttribute(name, String(value));
}

export function button(text, onClick, className = "link") {
  const element = make("button", className, text);
  element.type = "button";
  element.addEventListener("click", onClick);
  return element;
}

/** A table of lists of cells; the first of `head` decides nothing. numbers: columns that are numbers. */
export function table(caption, head, rows, numbers = []) {
  const of = (tag, cells, scope) => {
    const row = make("tr");
    cells.forEach((cell, place) => {
      const element = make(tag, numbers.includes(place) ? "number" : "", cell);
      if (scope) element.scope = scope;
      row.append(element);
    });
    return row;
  };
  const body = make("tbody", "", ...rows.map((cells) => of("td", cells, "")));
  return make("table", "list", make("caption", "hidden", caption), make("thead", "", of("th", head, "col")), body);
}

export function span(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 100) return `${seconds} s`;
  if (seconds < 6000) return `${Math.round(seconds / 60)} min`;
  return seconds < 172800 ? `${Math.round(seconds / 3600)} h` : `${Math.round(seconds / 86400)} d`;
}

export const whole = new Intl.NumberFormat("en");
