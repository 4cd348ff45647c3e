// INSTRUMENT F1.1: shapes that are aligned, stretched and added.

import {$, ARROWS, ask, bytes, chips, make, press, say, soon, table, tuple, whole}
  from "./common.js";

const NAMES = "ABC";
const EXAMPLES = [
  ["a bias for each row", ["4, 6", "4, 1"]],
  ["the same, large", ["64, 768", "64, 1"]],
  ["column and row", ["2, 1", "1, 3"]],
  ["images and channels", ["2, 3, 4, 4", "3, 1, 1"]],
  ["the silent mistake", ["64, 1", "64"]],
  ["a clash", ["64, 3", "768"]],
  ["three of them", ["2, 1, 4", "3, 1", "4"]],
];
const MEANS = {
  equal: "equal", stretched: "stretched, stride 0", missing: "missing, stride 0", clash: "clash",
};
let shapes = ["4, 6", "4, 1"];
let answer = null;

export function start() {
  chips($("shape-examples"), EXAMPLES, (chosen) => { shapes = [...chosen]; fields(); update(); });
  fields();
  update();
}

const later = soon(update, 150);

/** One text field and a stepper for each axis, for each operand. */
function fields() {
  const boxes = shapes.map((text, k) => make("div", {class: "operand"},
    make("div", {class: "title"}, make("b", {}, NAMES[k]),
      make("label", {for: `shape-${k}`}, "shape"),
      k === 2 ? make("button", {type: "button", class: "small", click: () => {
        shapes = shapes.slice(0, 2); fields(); update(); }}, "remove") : null),
    make("input", {id: `shape-${k}`, value: text, autocomplete: "off", spellcheck: "false",
      input: (event) => { shapes[k] = event.target.value; steppers(k); later(); }}),
    make("div", {class: "axes", id: `axes-${k}`, role: "group",
      "aria-label": `Sizes of ${NAMES[k]}`})));
  if (shapes.length < 3) {
    boxes.push(make("button", {type: "button", class: "small", click: () => {
      shapes.push("1"); fields(); update(); $("shape-2").focus(); }}, "add a third"));
  }
  $("operands").replaceChildren(...boxes);
  shapes.forEach((_, k) => steppers(k));
}

function sizesOf(text) {
  const words = text.trim().replace(/^[([]|[)\]]$/g, "").split(/[\s,x×*;]+/).filter(Boolean);
  return words.every((word) => /^\d{1,15}$/.test(word)) ? words.map(Number) : null;
}

function steppers(k) {
  const sizes = sizesOf(shapes[k]);
  const put = (changed) => {
    shapes[k] = changed.join(", ");
    $(`shape-${k}`).value = shapes[k];
    steppers(k);
    update();
  };
  const again = (changed, label) => {
    put(changed);
    $(`axes-${k}`).querySelector(`[aria-label="${label}"]`)?.focus();
  };
  const change = (axis, size, label) =>
    again(sizes.map((old, place) => place === axis ? Math.max(0, size) : old), label);
  const boxes = (sizes ?? []).map((size, axis) => {
    const less = `smaller axis ${axis - sizes.length}`, more = `larger axis ${axis - sizes.length}`;
    return make("span", {class: "stepper"},
      make("button", {type: "button", "aria-label": less,
        click: () => change(axis, size - 1, less)}, "−"),
      make("span", {}, String(size)),
      make("button", {type: "button", "aria-label": more,
        click: () => change(axis, size + 1, more)}, "+"));
  });
  if (sizes) {
    boxes.push(make("span", {class: "stepper"},
      make("button", {type: "button", "aria-label": "one axis less", disabled: !sizes.length,
        click: () => again(sizes.slice(1), "one axis less")}, "‹"),
      make("button", {type: "button", "aria-label": "one axis more",
        click: () => again([1, ...sizes], "one axis more")}, "›")));
  }
  $(`axes-${k}`).replaceChildren(...boxes);
}

async function update() {
  press($("shape-examples"), shapes);
  const found = await ask("broadcasting", {shapes});
  if (!found) return;
  const wrong = found.error ?? found.refused;
  shapes.forEach((_, k) => $(`shape-${k}`)?.setAttribute("aria-invalid",
    String(Boolean(found.error?.startsWith(`${NAMES[k]}:`)
      || found.error?.startsWith(`${NAMES[k]} `)))));
  for (const id of ["alignment", "grids", "memory-facts"]) $(id).hidden = Boolean(found.error);
  $("cell-reading").textContent = "";
  if (found.error) {
    say($("shape-message"), [found.error], true);
    return;
  }
  answer = found;
  say($("shape-message"), [...(wrong ? [wrong] : []), ...found.notes], Boolean(wrong));
  align();
  for (const id of ["grids", "memory-facts"]) $(id).hidden = Boolean(wrong);
  if (!wrong) { facts(); grids(); }
}

/** Axes from the left, each operand a row, and what becomes of each. */
function align() {
  const axes = answer.axes;
  const row = (k) => [NAMES[k], ...axes.map((axis) => make("td", {class: axis.states[k]},
    make("b", {}, axis.sizes[k] === null ? "·" : whole(axis.sizes[k])),
    make("small", {}, MEANS[axis.states[k]])))];
  const last = ["result", ...axes.map((axis) => make("td",
    {class: axis.clash ? "clash" : "result"},
    make("b", {}, axis.clash ? "✕" : whole(axis.result))))];
  $("alignment").replaceChildren(axes.length
    ? table(["axis", ...axes.map((axis) => String(axis.axis))], [...answer.shapes.keys()].map(row)
      .concat([last]))
    : make("p", {class: "reading"}, "Scalars have no axes: one number meets one number."));
}

function facts() {
  const {result, operands} = answer;
  const most = Math.max(1, ...operands.map((each) => each.copied));
  const bar = (count) => {
    const drawn = make("span", {class: "bar", "aria-hidden": "true"});
    drawn.style.width = `${Math.max(0, 6 * count / most)}rem`;
    return drawn;
  };
  $("memory-facts").replaceChildren(table(
    ["tensor", "shape", "strides", "strides when expanded", "bytes held", "bytes if copied"],
    [...operands.map((each) => [each.name, tuple(each.shape), tuple(each.strides),
      tuple(each.expanded_strides), make("td", {}, bytes(each.held), bar(each.held)),
      make("td", {}, bytes(each.copied), bar(each.copied))]),
    ["result", tuple(result.shape), tuple(result.strides), "",
      `${bytes(result.bytes)}`, `${whole(result.elements)} element${result.elements === 1 ? "" : "s"}`]]));
}

/** The operands as they are expanded, and the result: the same cell lights up in all of them. */
function grids() {
  const {cells, operands, axes} = answer;
  const boxes = [];
  // Panels of several axes fill a line each: a sign between them would stand at its end.
  const sign = (text) => make("div", {class: "sign", "aria-hidden": "true",
    hidden: cells.drawn.length > 2}, text);
  operands.forEach((each, k) => {
    if (k) boxes.push(sign("+"));
    const copied = (cell) => axes.some((axis, place) => cell.index[place] > 0
      && axis.result !== 1 && (axis.states[k] === "stretched" || axis.states[k] === "missing"));
    boxes.push(grid(`${each.name}`, tuple(each.shape), (cell) => [String(cell.offsets[k]),
      copied(cell) ? "cell copy" : "cell"]));
  });
  boxes.push(sign("="));
  boxes.push(grid("result", tuple(answer.result.shape), (cell) => [String(cell.offset),
    "cell sum"]));
  $("grids").replaceChildren(...boxes);
  if (!cells.list.length) {
    $("grids").replaceChildren(make("p", {class: "more"},
      "The result has no elements: one of its sizes is 0."));
    return;
  }
  light(Math.min(cells.list.length - 1, 1 + (cells.drawn.at(-1) ?? 0)));
}

function grid(name, shape, look) {
  const {cells} = answer;
  const wide = cells.drawn.at(-1) ?? 1;
  const high = cells.drawn.at(-2) ?? 1;
  const panels = [];
  for (let from = 0; from < cells.list.length; from += wide * high) {
    const part = cells.list.slice(from, from + wide * high);
    const field = make("div", {class: "cells"}, ...part.map((cell, place) => {
      const [text, kind] = look(cell);
      return make("div", {class: kind, "data-cell": from + place, "data-text": text,
        pointerenter: () => light(from + place), click: () => light(from + place)}, text);
    }));
    field.style.gridTemplateColumns = `repeat(${wide}, auto)`;
    const lead = part[0].index.slice(0, -2);
    panels.push(make("div", {class: "panel"},
      lead.length ? make("small", {}, `[${lead.join(", ")}]`) : null, field));
  }
  const box = make("div", {class: "grid-box", tabindex: "0", role: "group",
    "aria-label": `${name} ${shape}; arrow keys move over its cells`,
    keydown: (event) => move(event, wide)},
    make("h2", {class: "label"}, make("b", {}, name), shape),
    make("div", {class: "panels"}, ...panels));
  if (!cells.whole) {
    box.append(make("div", {class: "more"}, `its first cells, ${cells.drawn.join(" × ")}`));
  }
  return box;
}

let lit = 0;

function move(event, wide) {
  const step = ARROWS[event.key];
  if (!step) return;
  event.preventDefault();
  const next = lit + step[0] * wide + step[1];
  if (next >= 0 && next < answer.cells.list.length) light(next);
}

function light(place) {
  lit = place;
  const cell = answer.cells.list[place];
  [...$("grids").querySelectorAll(".grid-box")].forEach((box, k) => {
    for (const each of box.querySelectorAll(".cell")) {
      const other = answer.cells.list[each.dataset.cell];
      each.classList.toggle("here", Number(each.dataset.cell) === place);
      each.classList.toggle("same", k < cell.offsets.length
        && other.offsets[k] === cell.offsets[k] && other !== cell);
    }
  });
  const terms = (each) => each.expanded_strides.length
    ? `${cell.index.map((i, axis) => `${i}·${each.expanded_strides[axis]}`).join(" + ")} = ` : "";
  $("cell-reading").replaceChildren(
    "At ", make("b", {}, `[${cell.index.join(", ")}]`), ...answer.operands.flatMap((each, k) => [
      k ? ", " : " meet ", `${each.name} at offset `,
      make("b", {}, `${terms(each)}${cell.offsets[k]}`)]),
    "; the sum is stored at ", make("b", {}, String(cell.offset)), ".");
}
