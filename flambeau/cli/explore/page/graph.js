// INSTRUMENT F1.2: the recorded graph, and the walk back through it.

import {$, ask, brief, chips, draw, make, press, say, short, soon} from "./common.js";

const EXAMPLES = [
  ["two ways to a", {program: "c = a*b\nd = c + a\nL = d**2", inputs: {a: 2, b: 3}}],
  ["a neuron", {program: "z = w @ x + b\ny = sigmoid(z)\nL = (y - 1)**2",
    inputs: {w: [0.5, -1], x: [1, 2], b: 0.25}, frozen: ["x"]}],
  ["detach", {program: "h = a*b\ntarget = h.detach()\nL = h*target + a",
    inputs: {a: 0.5, b: 1}}],
  ["no_grad", {program: "h = exp(a)\nwith no_grad():\n    scale = h*b\nL = h*scale",
    inputs: {a: 0.5, b: 2}}],
  ["retain_grad", {program: "c = a*b\nc.retain_grad()\nL = sin(c) + c**2", inputs: {a: 1, b: 0.5}}],
  ["least squares", {program:
    "X = [[1, 0], [1, 1], [1, 2]]\ny = [1, 3, 5]\nerr = X @ w - y\nL = (err**2).mean()",
    inputs: {w: [0, 0]}, frozen: ["X", "y"]}],
];
const BOX = {width: 118, height: 52, across: 186, down: 92, margin: 26};

let program = "", inputs = {}, frozen = [];
let answer = null, at = 0, picked = null, playing = 0;
const later = soon(() => update(), 150);

export function start() {
  chips($("graph-examples"), EXAMPLES, take);
  $("program").addEventListener("input", (event) => { program = event.target.value; later(); });
  player();
  addEventListener("resize", soon(() => { if (answer) picture(); }, 150));
  take(EXAMPLES[0][1]);
}

function take(example) {
  program = example.program;
  inputs = {...example.inputs};
  frozen = [...example.frozen ?? []];
  $("program").value = program;
  $("program").rows = Math.max(4, program.split("\n").length + 1);
  update(true);
}

async function update(fresh = false) {
  const known = Object.fromEntries(Object.entries(inputs).filter(([name]) => !answer
    || fresh || new RegExp(`\\b${name}\\b`).test(program)));
  press($("graph-examples"), {program, inputs, ...(frozen.length ? {frozen} : {})});
  let found = await ask("graph", {program, inputs: fresh ? inputs : known, frozen});
  const stray = /has no input named (.+?);/.exec(found?.error ?? "");
  if (stray) {  // an input of an earlier program
    for (const name of stray[1].split(" or ")) { delete inputs[name]; delete known[name]; }
    found = await ask("graph", {program, inputs: known, frozen});
  }
  if (!found) return;
  $("program").setAttribute("aria-invalid", String(Boolean(found.error)));
  if (found.error) {
    stop();
    say($("graph-message"), [found.error], true);
    return;
  }
  const grown = !answer || fresh || answer.steps.length !== found.steps.length;
  answer = found;
  say($("graph-message"), [...(found.refused ? [found.refused] : []), ...found.notes],
    Boolean(found.refused));
  if (grown) { stop(); at = answer.steps.length; picked = null; }
  fields();
  picture();
  show();
}

/** A value, a slider for numbers, and whether gradients are wanted, for each input. */
function fields() {
  const wanted = answer.inputs.map((each) => `${each.name}:${each.shape}:${each.in_program}`).join();
  if ($("inputs").dataset.made !== wanted) {
    $("inputs").dataset.made = wanted;
    $("inputs").replaceChildren(...answer.inputs.map(field));
  }
  for (const each of answer.inputs) {
    const box = $(`value-${each.name}`);
    if (document.activeElement !== box) box.value = short(each.value);
    const slider = $(`slider-${each.name}`);
    if (slider && document.activeElement !== slider) slider.value = each.value;
    $(`grad-${each.name}`).checked = each.requires_grad;
  }
}

function field(each) {
  const scalar = !each.shape.length && !each.in_program;
  const reach = scalar ? Math.max(4, 2 * Math.abs(each.value)) : 0;
  return make("div", {class: "input"},
    make("div", {class: "head"}, make("b", {}, each.name),
      make("input", {id: `value-${each.name}`, "aria-label": `value of ${each.name}`,
        autocomplete: "off", spellcheck: "false", disabled: each.in_program,
        title: each.in_program ? "its value stands in the program" : null,
        input: (event) => { inputs[each.name] = event.target.value; later(); }}),
      make("label", {class: "switch"}, make("input", {type: "checkbox", id: `grad-${each.name}`,
        change: (event) => {
          frozen = frozen.filter((name) => name !== each.name);
          if (!event.target.checked) frozen.push(each.name);
          update();
        }}), "requires_grad")),
    scalar ? make("input", {type: "range", id: `slider-${each.name}`, min: -reach, max: reach,
      step: reach > 20 ? 0.5 : 0.05, "aria-label": `${each.name}, slider`,
      input: (event) => {
        inputs[each.name] = Number(event.target.value);
        $(`value-${each.name}`).value = short(inputs[each.name]);
        update();
      }}) : null);
}

// -- the picture ---------------------------------------------------------------------------------

/** Where boxes stand; from left to right, or from top to bottom where there is little room. */
function places() {
  const upright = $("drawing").clientWidth < 620;
  const spot = (layer, height) => upright
    ? {x: BOX.margin + BOX.width / 2 + height * (BOX.width + 22),
      y: BOX.margin + BOX.height / 2 + layer * (BOX.height + 58)}
    : {x: BOX.margin + BOX.width / 2 + layer * BOX.across,
      y: BOX.margin + BOX.height / 2 + height * BOX.down};
  return {upright, spot};
}

function picture() {
  const {upright, spot} = places();
  const spots = answer.nodes.map((node) => spot(node.layer, node.height));
  const ways = answer.edges.map((edge) => [spots[edge.from],
    ...edge.through.map(([layer, height]) => spot(layer, height)), spots[edge.to]]);
  const all = [...spots, ...ways.flat()];
  const wide = Math.max(...all.map((p) => p.x)) + BOX.width / 2 + BOX.margin;
  const high = Math.max(...all.map((p) => p.y)) + BOX.height / 2 + BOX.margin;
  const room = $("drawing").clientWidth - 4;
  const scale = Math.min(1, Math.max(0.7, room / wide));
  const svg = draw("svg", {viewBox: `0 0 ${wide} ${high}`, width: wide * scale,
    height: high * scale, role: "group", "aria-label": "The graph; steps can be chosen"});
  svg.append(...answer.edges.map((edge, k) => line(edge, k, ways[k], upright)),
    ...answer.nodes.map((node, k) => box(node, spots[k])),
    ...answer.edges.map((edge, k) => label(edge, k, ways[k])));
  $("drawing").replaceChildren(svg);
}

/** A smooth way through points, ending at the sides of boxes. */
function line(edge, k, way, upright) {
  const half = upright ? BOX.height / 2 : BOX.width / 2;
  const along = upright ? "y" : "x";
  const points = way.map((p, place) => ({...p,
    [along]: p[along] + (place === 0 ? half : place === way.length - 1 ? -half - 7 : 0)}));
  let path = `M${points[0].x},${points[0].y}`;
  for (let i = 1; i < points.length; i++) {
    const a = points[i - 1], b = points[i];
    const bend = (b[along] - a[along]) / 2;
    path += upright ? `C${a.x},${a.y + bend} ${b.x},${b.y - bend} ${b.x},${b.y}`
      : `C${a.x + bend},${a.y} ${b.x - bend},${b.y} ${b.x},${b.y}`;
  }
  const end = points.at(-1);
  const tip = upright ? `M${end.x},${end.y + 7}l-4.5,-8h9z` : `M${end.x + 7},${end.y}l-8,-4.5v9z`;
  const kind = edge.live ? "" : " cut";
  return draw("g", {"data-edge": k}, draw("path", {class: `edge${kind}`, d: path}),
    draw("path", {class: "tip", d: tip}));
}

function label(edge, k, way) {
  const a = way[Math.floor((way.length - 1) / 2)], b = way[Math.floor((way.length - 1) / 2) + 1];
  const inner = way.length > 2 && way.length % 2 === 1 ? way[(way.length - 1) / 2]
    : {x: (a.x + b.x) / 2, y: (a.y + b.y) / 2};
  return draw("g", {class: "adjoint", "data-label": k, visibility: "hidden",
    transform: `translate(${inner.x},${inner.y})`},
  draw("rect", {x: -20, y: -9.5, width: 40, height: 19, rx: 5}), draw("text", {y: 4.5}));
}

function box(node, spot) {
  const name = node.names.join(", ");
  const value = node.value === null ? "" : brief(node.value, node.shape, 13 - name.length);
  const joint = value.startsWith("(") ? " " : " = ";
  const title = name ? `${name}${joint}${value}` : value || node.label;
  const under = node.input ? (node.requires_grad ? "leaf" : "no gradient")
    : !node.live && node.cut ? node.label : node.grad_fn ?? "constant";
  const kind = ["node", node.live ? "live" : "cut", node.live && node.leaf ? "leaf" : ""].join(" ");
  const drawn = draw("g", {class: kind, "data-node": node.id, tabindex: "0", role: "button",
    transform: `translate(${spot.x},${spot.y})`,
    click: () => pick(node.id), keydown: (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); pick(node.id); }
    }},
  draw("title", {}, node.cut ?? node.source),
  draw("rect", {x: -BOX.width / 2, y: -BOX.height / 2, width: BOX.width, height: BOX.height,
    rx: node.leaf ? BOX.height / 2 : 10}),
  draw("text", {y: -2, class: title.length > 12 ? "long" : null}, title),
  draw("text", {class: "under", y: 15}, under));
  if (node.kept.length) {
    drawn.append(draw("circle", {class: "dot", cx: BOX.width / 2 - 11, cy: -BOX.height / 2 + 11,
      r: 3.6, "stroke-width": 1.4}));
  }
  return drawn;
}

function pick(number) {
  picked = picked === number ? null : number;
  show();
}

// -- the walk ------------------------------------------------------------------------------------

function player() {
  const button = (text, title, act, kind) => make("button", {type: "button", class: kind,
    "aria-label": kind ? null : title, title, click: act}, text);
  $("player").replaceChildren(
    button("Play", "Play the walk back", () => playing ? stop() : play(), "main"),
    button("‹", "One step earlier", () => { stop(); go(at - 1); }),
    button("›", "One step on", () => { stop(); go(at + 1); }),
    make("input", {type: "range", min: 0, max: 1, step: 1, "aria-label": "Steps gone back",
      input: (event) => { stop(); go(Number(event.target.value)); }}),
    make("output", {}));
}

function play() {
  if (at >= answer.steps.length) go(0);
  playing = setInterval(() => {
    go(at + 1);
    if (at >= answer.steps.length) stop();
  }, 1100);
  $("player").querySelector(".main").textContent = "Pause";
}

function stop() {
  clearInterval(playing);
  playing = 0;
  $("player").querySelector(".main").textContent = "Play";
}

function go(place) {
  at = Math.max(0, Math.min(answer.steps.length, place));
  picked = null;
  show();
}

/** Everything that depends on how far the walk has come. */
function show() {
  const {steps, edges, nodes} = answer;
  const [main, less, more, slider] = $("player").children;
  main.disabled = more.disabled = !steps.length;
  more.disabled = at >= steps.length;
  less.disabled = at === 0;
  slider.max = steps.length;
  slider.value = at;
  slider.disabled = !steps.length;
  $("player").querySelector("output").textContent = `${at} of ${steps.length}`;
  const gone = new Map();
  steps.slice(0, at).forEach((step, place) => {
    for (const each of step.gives) gone.set(each.edge, {...each, now: place === at - 1});
  });
  edges.forEach((edge, k) => {
    const given = gone.get(k);
    const mark = given ? (given.now && at < steps.length ? "active" : "done") : "";
    for (const part of $("drawing").querySelectorAll(`[data-edge="${k}"] path`)) {
      part.classList.remove("active", "done");
      if (mark) part.classList.add(mark);
    }
    const tag = $("drawing").querySelector(`[data-label="${k}"]`);
    tag.setAttribute("visibility", given ? "visible" : "hidden");
    if (given) {
      const text = brief(given.value, shapeOf(given.value), 9);
      tag.querySelector("text").textContent = text;
      const wide = text.length * 7.8 + 10;
      tag.querySelector("rect").setAttribute("width", wide);
      tag.querySelector("rect").setAttribute("x", -wide / 2);
    }
  });
  const keeping = at === 0 ? null : new Set(steps[at - 1].keeping);
  for (const node of nodes) {
    const drawn = $("drawing").querySelector(`[data-node="${node.id}"]`);
    drawn.classList.toggle("active", at > 0 && at < steps.length && steps[at - 1].node === node.id);
    drawn.classList.toggle("picked", picked === node.id);
    drawn.querySelector(".dot")?.classList.toggle("gone", keeping !== null
      && !keeping.has(node.id));
  }
  gradients();
  keptList(keeping);
  reading();
}

function shapeOf(value) {
  const sizes = [];
  while (Array.isArray(value)) { sizes.push(value.length); value = value[0]; }
  return sizes;
}

function nameOf(number) {
  const node = answer.nodes[number];
  return node.names[0] ?? node.source;
}

/** The gradients of leaves so far, as the sum of what came by each way. */
function gradients() {
  const now = at ? answer.steps[at - 1].grads : {};
  const lines = answer.nodes.filter((node) => node.requires_grad && (node.leaf || node.retains)
    && (node.live || node.input)).map((node) => {
    const whole = at === answer.steps.length;
    const value = node.leaf ? now[node.id] ?? (whole ? node.grad : null)
      : came(node.id).length || whole ? node.grad : null;
    const parts = came(node.id);
    const sum = parts.length > 1 && value !== null && parts.every((v) => typeof v === "number")
      ? `${parts.map((each) => short(each)).join(" + ")} = ` : "";
    return make("p", {}, `${nameOf(node.id)}.grad = ${sum}${short(value)}`,
      node.retains ? " (retained)" : "");
  });
  $("gradients").replaceChildren(...(lines.length ? lines : [make("p", {}, "no leaf wants one")]));
}

/** What has come to a tensor so far, one value for each way. */
function came(number) {
  return answer.steps.slice(0, at).flatMap((step) => step.gives
    .filter((each) => answer.edges[each.edge].from === number).map((each) => each.value));
}

function keptList(keeping) {
  const lines = answer.nodes.filter((node) => node.kept.length).sort((a, b) =>
    b.sequence - a.sequence).map((node) => make("p", {
    class: keeping !== null && !keeping.has(node.id) ? "gone" : null},
  `${node.grad_fn}: ${node.kept.join("; ")}`));
  $("kept").replaceChildren(...(lines.length ? lines : [make("p", {}, "nothing")]));
}

function reading() {
  const b = (text) => make("b", {}, text);
  const said = $("step-reading");
  if (picked !== null) {
    const node = answer.nodes[picked];
    said.replaceChildren(b(node.names.length ? `${node.names.join(" = ")} = ${node.source}`
      : node.source), " is ", b(short(node.value)), node.grad_fn ? `, made by ${node.grad_fn}` : "",
    node.sequence !== null ? `, step ${node.sequence} of this process` : "",
    node.kept.length ? `, which keeps ${node.kept.join("; ")}` : "", ". ",
    node.cut ? `It is not in the graph: ${node.cut}.` : "");
    return;
  }
  if (!answer.steps.length) {
    said.replaceChildren(answer.refused ? "" : "The result is a leaf itself: there is no step to "
      + "go back.");
  } else if (at === 0) {
    said.replaceChildren("The forward pass is done. ", b("backward()"), " starts at ",
      b(answer.output), " with the adjoint 1.");
  } else if (at === answer.steps.length && !playing) {
    said.replaceChildren("All ", b(String(at)), " steps have gone back, and what they kept is "
      + "freed. Gradients stay in the leaves.");
  } else {
    const step = answer.steps[at - 1];
    said.replaceChildren(`${at}. `, b(step.grad_fn), " of ", b(nameOf(step.node)), " is given ",
      b(short(step.adjoint)), " and gives ", ...step.gives.flatMap((each, k) => [k ? ", " : "",
        b(short(each.value)), " to ", b(nameOf(answer.edges[each.edge].from))]), ".");
  }
}
