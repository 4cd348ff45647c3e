// The other half of INSTRUMENT F1.1: views as strides over one storage (EQ F1.1).

import {$, ARROWS, ask, bytes, chips, make, press, say, soon, tuple} from "./common.js";

let shape = "3, 4", formula = "x.T[1:, ::2]";
let answer = null, chosen = 0, lit = 0;
const later = soon(update, 200);

export function start() {
  for (const [id, put] of [["view-shape", (text) => { shape = text; }],
    ["view-formula", (text) => { formula = text; }]]) {
    $(id).addEventListener("input", (event) => { put(event.target.value); later(); });
  }
  fill();
  update();
}

function fill() {
  $("view-shape").value = shape;
  $("view-formula").value = formula;
}

async function update() {
  const found = await ask("strides", {shape, formula});
  if (!found) return;
  const bad = Boolean(found.error);
  for (const id of ["view-steps", "view-grid", "view-memory", "view-reading"]) $(id).hidden = bad;
  $("view-formula").setAttribute("aria-invalid", String(bad || Boolean(found.refused)));
  say($("view-message"), found.error || found.refused ? [found.error ?? found.refused] : [], true);
  if (bad) return;
  if (!$("view-examples").children.length) {
    chips($("view-examples"), found.presets, (text) => { formula = text; fill(); update(); });
  }
  press($("view-examples"), formula);
  answer = found;
  choose(found.steps.length - 1);
}

function choose(place, focus = false) {
  chosen = place;
  const head = ["tensor", "shape", "strides", "offset", "contiguous", "storage"];
  const rows = answer.steps.map((step, k) => make("tr", {
    class: k === chosen ? "on" : null, tabindex: "0", "aria-current": k === chosen ? "true" : null,
    click: () => choose(k, true),
    keydown: (event) => { if (event.key === "Enter" || event.key === " ") {
      event.preventDefault(); choose(k, true); } },
  }, make("th", {scope: "row"}, make("code", {}, step.source)), make("td", {}, tuple(step.shape)),
  make("td", {}, tuple(step.strides)), make("td", {}, String(step.offset)),
  make("td", {class: "words"}, step.contiguous ? "yes"
    : `no; that would be ${tuple(step.default)}`),
  make("td", {class: "words"}, step.shares ? (k ? "shared with x" : bytes(step.held))
    : `a copy, ${bytes(step.held)}`)));
  $("view-steps").replaceChildren(make("table", {},
    make("thead", {}, make("tr", {}, ...head.map((text) => make("th", {scope: "col"}, text)))),
    make("tbody", {}, ...rows)));
  if (focus) $("view-steps").querySelectorAll("tbody tr")[place].focus();
  drawLens();
}

/** [index, place, value] of every element, in order. */
function elements(step) {
  const found = [];
  const walk = (places, values, index) => {
    if (Array.isArray(places)) places.forEach((part, k) => walk(part, values[k], [...index, k]));
    else found.push({index, place: places, value: values});
  };
  walk(step.places, step.values, []);
  return found;
}

function drawLens() {
  const step = answer.steps[chosen];
  const found = elements(step);
  const wide = step.shape.at(-1) ?? 1, high = step.shape.at(-2) ?? 1;
  const panels = [];
  for (let from = 0; from < found.length; from += wide * high) {
    const field = make("div", {class: "cells"}, ...found.slice(from, from + wide * high).map(
      (each, k) => make("div", {class: "cell", "data-k": from + k,
        pointerenter: () => light(from + k), click: () => light(from + k)}, String(each.value))));
    field.style.gridTemplateColumns = `repeat(${wide}, auto)`;
    panels.push(make("div", {class: "panel"}, field));
  }
  $("view-grid").replaceChildren(make("div", {class: "grid-box", tabindex: "0", role: "group",
    "aria-label": `${step.source}; arrow keys move over its elements`,
    keydown: (event) => {
      const way = ARROWS[event.key];
      if (!way) return;
      event.preventDefault();
      const next = lit + way[0] * wide + way[1];
      if (next >= 0 && next < found.length) light(next);
    }}, make("h2", {class: "label"}, make("b", {}, step.source), tuple(step.shape)),
    make("div", {class: "panels"}, ...panels)));
  memory(step, found);
  lit = 0;
  if (found.length) light(Math.min(found.length - 1, wide));
  else $("view-reading").textContent = "It has no elements.";
}

function memory(step, found) {
  const used = new Set(found.map((each) => each.place));
  const held = Math.min(256, step.shares ? answer.memory.length : Math.max(0, ...used) + 1);
  const value = new Map(found.map((each) => [each.place, each.value]));
  $("view-memory").replaceChildren(make("div", {class: "grid-box"},
    make("h2", {class: "label"}, make("b", {}, "storage"), step.shares ? "x's own bytes" : "bytes of its own"),
    make("div", {class: "cells"}, ...Array.from({length: held}, (_, place) =>
      make("div", {class: used.has(place) ? "cell" : "cell free", "data-place": place,
        pointerenter: () => {
          const k = found.findIndex((each) => each.place === place);
          if (k >= 0) light(k);
        }}, String(step.shares ? answer.memory[place] : value.get(place) ?? "·"))))));
}

function light(k) {
  const step = answer.steps[chosen], found = elements(step), each = found[k];
  lit = k;
  for (const cell of $("view-grid").querySelectorAll(".cell")) {
    cell.classList.toggle("here", Number(cell.dataset.k) === k);
    cell.classList.toggle("same", Number(cell.dataset.k) !== k
      && found[cell.dataset.k].place === each.place);
  }
  for (const cell of $("view-memory").querySelectorAll(".cell")) {
    cell.classList.toggle("here", Number(cell.dataset.place) === each.place);
  }
  const terms = each.index.map((i, axis) => `${i}·${step.strides[axis]}`).join(" + ");
  $("view-reading").replaceChildren("Element ", make("b", {}, `[${each.index.join(", ")}]`),
    " lies at ", make("b", {}, `${step.offset}${terms ? ` + ${terms}` : ""} = ${each.place}`),
    " and is ", make("b", {}, String(each.value)), ".");
}
