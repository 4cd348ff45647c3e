// Small tools that every instrument uses: elements, numbers, questions to the server.

export const $ = (id) => document.getElementById(id);

/** An element: make("p", {class: "reading"}, "text", child, ...); functions listen to events. */
export function make(tag, attributes = {}, ...children) {
  return furnish(document.createElement(tag), attributes, children);
}

export function draw(tag, attributes = {}, ...children) {
  return furnish(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function furnish(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined && value !== false) {
      element.setAttribute(name, value === true ? "" : value);
    }
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

/** A number with at most six digits, as Python's %g writes it; lists in brackets. */
export function short(value, digits = 6) {
  if (value === null || value === undefined) return "None";
  if (Array.isArray(value)) return `[${value.map((each) => short(each, digits)).join(", ")}]`;
  if (typeof value !== "number") return String(value);
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e-4 && size < 1e6) return String(Number(value.toPrecision(digits)));
  return value.toExponential(digits - 1).replace(/\.?0+e/, "e").replace("e+", "e");
}

/** The same in little room, with four digits; what is too long becomes its shape. */
export function brief(value, shape, room) {
  const text = short(value, 4);
  return text.length <= room || !shape?.length ? text : tuple(shape);
}

export function tuple(sizes) {
  return sizes.length === 1 ? `(${sizes[0]},)` : `(${sizes.join(", ")})`;
}

export function bytes(count) {
  let amount = count;
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB", "EB"];
  while (amount >= 1000 && units.length > 1) { amount /= 1000; units.shift(); }
  return `${count < 1000 ? count : Number(amount.toPrecision(3))} ${units[0]}`;
}

export function whole(number) {
  return number.toLocaleString("en-US");
}

/** A table from rows of cells; a cell is text, or {text, class}, or an element. */
export function table(head, rows) {
  const cell = (tag, content) => {
    if (content instanceof Element) return content;
    const {text = content, ...rest} = content?.constructor === Object ? content : {};
    return make(tag, rest, text);
  };
  return make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", {scope: "col"}, text)))),
    make("tbody", {}, ...rows.map(([first, ...rest]) => make("tr", {},
      make("th", {scope: "row"}, first), ...rest.map((each) => cell("td", each))))));
}

/** Ask the library; only the newest answer to a kind of question is of interest. */
const newest = new Map();

export async function ask(question, asked) {
  const mine = (newest.get(question) ?? 0) + 1;
  newest.set(question, mine);
  let answer;
  try {
    const reply = await fetch(question, {
      method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(asked),
    });
    answer = await reply.json();
    $("trouble").hidden = true;
  } catch {
    $("trouble").textContent = "flambeau does not answer: was the command ended? "
      + "Start flambeau explore again and open the address it says.";
    $("trouble").hidden = false;
    return null;
  }
  return newest.get(question) === mine ? answer : null;
}

/** Sentences in a message box; bad ones are marked. */
export function say(box, sentences, bad = false) {
  box.classList.toggle("bad", bad);
  box.replaceChildren(...sentences.map((sentence) => make("p", {}, sentence)));
}

/** Chips: one of several examples. */
export function chips(box, examples, choose) {
  box.replaceChildren(...examples.map(([title, value]) => make("button",
    {type: "button", "aria-pressed": "false", "data-value": JSON.stringify(value),
     click: () => choose(value)}, title)));
}

export function press(box, value) {
  const wanted = JSON.stringify(value);
  for (const chip of box.children) {
    chip.setAttribute("aria-pressed", String(chip.dataset.value === wanted));
  }
}

/** Call at most once in a while, with the newest arguments. */
export function soon(action, wait = 120) {
  let timer = 0;
  return (...given) => {
    clearTimeout(timer);
    timer = setTimeout(() => action(...given), wait);
  };
}

/** Arrow keys as steps: [0, 1] for right, [1, 0] for down. */
export const ARROWS = {
  ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0],
};
