// INSTRUMENT F1.3: a training loop, line by line and in full.

import {$, ask, bytes, draw, make, say, short, soon, table} from "./common.js";

const MODELS = {line: "a line", net: "two layers"};
const SWITCHES = [
  ["zero_grad", "without zero_grad()", "gradients add up"],
  ["early", "step() before backward()", "updates see old gradients, or none"],
  ["shuffle", "without shuffling", "batches come sorted"],
  ["no_grad", "no_grad() forgotten", "validation keeps graphs alive"],
  ["eval", "eval() forgotten", "validation with dropout on"],
  ["lr", "learning rate too high", "steps overshoot"],
];
const TOO_HIGH = {line: 1.0, net: 40};
const PLOT = {width: 460, height: 260, left: 50, right: 12, top: 12, bottom: 26};
const FIT = {width: 368, height: 260};

let asked = {model: "line", lr: null, without: [], early: false, at: 0};
let answer = null, line = 4, playing = 0;
const later = soon(() => update(), 60);

export function start() {
  $("models").replaceChildren(...Object.entries(MODELS).map(([name, title]) => make("button", {
    type: "button", role: "radio", "data-model": name,
    click: () => { stop(); asked = {...asked, model: name, lr: null, at: 0}; update(); }}, title)));
  $("models").addEventListener("keydown", (event) => {
    if (!event.key.startsWith("Arrow")) return;
    const other = [...$("models").children].find((each) => each.dataset.model !== asked.model);
    other.click();
    other.focus();
  });
  $("switches").replaceChildren(...SWITCHES.map(([name, title, why]) => make("label",
    {class: "switch"}, make("input", {type: "checkbox", id: `switch-${name}`,
      change: (event) => flip(name, event.target.checked)}),
    make("span", {}, title, make("br"), make("small", {}, why)))));
  $("lr").addEventListener("input", (event) => {
    asked.lr = Number((10 ** event.target.value).toPrecision(3));
    $("lr-said").textContent = short(asked.lr);
    later();
  });
  $("line").addEventListener("input", (event) => choose(Number(event.target.value)));
  $("code").addEventListener("keydown", (event) => {
    const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
    if (step) { event.preventDefault(); choose(line + step); }
  });
  player();
  addEventListener("repaint", () => { if (answer) fit(); });
  update();
}

function flip(name, on) {
  if (name === "lr") asked.lr = on ? TOO_HIGH[asked.model] : null;
  else if (name === "early") asked.early = on;
  else asked.without = on ? [...asked.without, name] : asked.without.filter((k) => k !== name);
  update();
}

async function update() {
  const found = await ask("loop", asked);
  if (!found) return;
  say($("loop-message"), found.error ? [found.error] : [], true);
  if (found.error) return;
  answer = found;
  asked.at = answer.at;
  for (const each of $("models").children) {
    const on = each.dataset.model === answer.model;
    each.setAttribute("aria-checked", String(on));
    each.tabIndex = on ? 0 : -1;
  }
  $("about").textContent = answer.about;
  $("lr").value = Math.log10(answer.lr);
  $("lr-said").textContent = short(answer.lr);
  $("switch-lr").checked = answer.lr > answer.default_lr * 3;
  $("switch-eval").disabled = answer.model === "line";
  code();
  verdict();
  choose(Math.min(line, answer.detail.length - 1));
  progress();
}

// -- the lines -----------------------------------------------------------------------------------

function code() {
  const gone = (name) => answer.without.includes(name) ? "frame gone" : "frame";
  const loader = answer.without.includes("shuffle") ? "loader:" : "loader:  # shuffled";
  let place = 0;
  const lines = answer.lines.map((each) => {
    if (!each.runs) return make("div", {class: "gone"}, `    ${each.call}`);
    place += 1;
    const mine = place;
    return make("div", {role: "option", "aria-selected": "false", "data-line": mine,
      id: `line-${mine}`, click: () => choose(mine)}, `    ${each.call}`);
  });
  $("code").replaceChildren(
    make("div", {class: "frame"}, `for x, y in ${loader}`), ...lines,
    make("div", {class: "frame"}, "# after each pass"),
    make("div", {class: gone("eval")}, "model.eval()"),
    make("div", {class: gone("no_grad")}, "with torch.no_grad():"),
    make("div", {class: "frame"}, "    val = loss_fn(model(x_val), y_val)"));
  $("line").max = answer.detail.length - 1;
}

function choose(place) {
  line = Math.max(0, Math.min(answer.detail.length - 1, place));
  $("line").value = line;
  for (const each of $("code").querySelectorAll("[data-line]")) {
    each.setAttribute("aria-selected", String(Number(each.dataset.line) === line));
  }
  if (line) $("code").setAttribute("aria-activedescendant", `line-${line}`);
  else $("code").removeAttribute("aria-activedescendant");
  const seen = answer.detail[line], before = answer.detail[Math.max(0, line - 1)];
  const call = answer.lines.find((each) => each.key === seen.line)?.call;
  $("line-said").textContent = call ? `${line}: ${call}` : "before the first";
  $("line").setAttribute("aria-valuetext", $("line-said").textContent);
  $("line-title").textContent = `step ${answer.at + 1}, ${line ? "after line" : ""}`;
  $("line-reading").textContent = line ? seen.says
    : "Drag, or press a line of the loop, to walk through this step.";
  state(seen, before);
}

/** The graph, gradients and parameters; what the line has changed is marked. */
function state(seen, before) {
  const differ = (now, old) => JSON.stringify(now) !== JSON.stringify(old);
  const cell = (now, old) => ({text: few(now), class: differ(now, old) ? "changed" : null});
  const tile = (title, changed, wider, ...inside) => make("div",
    {class: `tile${changed ? " changed" : ""}${wider ? " wider" : ""}`},
    make("h2", {class: "label"}, title), ...inside);
  const g = seen.graph;
  const holds = g.kept ? `${g.steps} step${g.steps > 1 ? "s" : ""}, holding ${g.kept} tensor`
    + `${g.kept > 1 ? "s" : ""}, ${bytes(g.bytes)}` : !g.steps ? "none"
    : g.freed ? `${g.steps} steps, all freed` : `${g.steps} steps, holding nothing`;
  $("tiles").replaceChildren(
    tile("graph", differ(g, before.graph), true, make("p", {}, holds),
      make("div", {class: "steps"}, ...g.names.map((name) => make("span",
        {class: g.freed ? "gone" : null}, name)))),
    tile("loss", differ(seen.loss, before.loss), false,
      make("p", {}, seen.loss === null ? "not yet" : short(seen.loss))),
    ...answer.without.includes("no_grad") ? [tile("kept by validation losses", true, false,
      make("p", {}, heldByValidation()))] : []);
  $("state").replaceChildren(table(["parameter", "value", ".grad"], answer.names.map((name) =>
    [make("code", {}, name), cell(seen.params[name], before.params[name]),
      cell(seen.grads[name], before.grads[name])])));
}

/** The graphs that the validation losses so far keep alive. */
function heldByValidation() {
  const last = answer.validation.findLast((each) => each.step <= answer.at);
  return last ? `${last.steps} steps, ${bytes(last.bytes)}` : "nothing yet";
}

/** A parameter in a line: its number, or the first few of them and how many there are. */
function few(value) {
  if (!Array.isArray(value)) return short(value);
  const flat = value.flat(9);
  return flat.length === 1 ? short(flat[0])
    : `${flat.slice(0, 2).map((each) => short(each, 4)).join(", ")} … ${flat.length} numbers`;
}

function verdict() {
  $("verdict").replaceChildren(...answer.verdict.map((sentence) => make("p", {}, sentence)));
}

// -- the run -------------------------------------------------------------------------------------

function player() {
  const button = (text, title, act, kind) => make("button", {type: "button", class: kind,
    "aria-label": kind ? null : title, title, click: act}, text);
  $("loop-player").replaceChildren(
    button("Play", "Run the training", () => playing ? stop(true) : play(), "main"),
    button("‹", "One step earlier", () => go(asked.at - 1)),
    button("›", "One step on", () => go(asked.at + 1)),
    make("input", {type: "range", min: 0, step: 1, "aria-label": "Step of the training",
      input: (event) => go(Number(event.target.value))}),
    make("output", {}));
}

function go(place) {
  stop();
  asked.at = Math.max(0, Math.min(answer.losses.length - 1, place));
  progress();
  later();
}

function play() {
  const last = answer.losses.length - 1;
  if (asked.at >= last) asked.at = 0;
  $("loop-player").querySelector(".main").textContent = "Pause";
  const began = performance.now(), from = asked.at, seconds = 0.5 + 6 * (last - from) / answer.steps;
  const tick = (now) => {
    const part = Math.min(1, (now - began) / 1000 / seconds);
    asked.at = Math.round(from + part * (last - from));
    progress();
    if (part < 1) playing = requestAnimationFrame(tick);
    else stop(true);
  };
  playing = requestAnimationFrame(tick);
}

function stop(look = false) {
  cancelAnimationFrame(playing);
  playing = 0;
  $("loop-player").querySelector(".main").textContent = "Play";
  if (look) update();
}

function progress() {
  const [, less, more, slider, said] = $("loop-player").children;
  slider.max = answer.losses.length - 1;
  slider.value = asked.at;
  less.disabled = asked.at === 0;
  more.disabled = asked.at >= answer.losses.length - 1;
  said.textContent = `step ${asked.at + 1}`;
  $("loss-said").textContent = short(answer.losses[asked.at]);
  curve();
  fit();
}

/** Loss on a logarithmic scale: this run, the run without mistakes, validation as dots. */
function curve() {
  const {width, height, left, right, top, bottom} = PLOT;
  const good = (value) => typeof value === "number" && value > 0;
  const dots = answer.validation.filter((each) => good(each.loss));
  const all = [...answer.losses, ...answer.should, ...dots.map((each) => each.loss)].filter(good);
  const low = Math.log10(Math.min(...all)), high = Math.log10(Math.max(...all));
  const room = Math.max(high - low, 0.5);
  const x = (step) => left + (width - left - right) * step / Math.max(1, answer.steps - 1);
  const y = (value) => top + (height - top - bottom) * (high - Math.log10(value)) / room;
  const path = (values, until) => {
    let text = "", down = false;
    values.slice(0, until).forEach((value, step) => {
      if (good(value)) text += `${down ? "L" : "M"}${x(step).toFixed(1)},${y(value).toFixed(1)}`;
      down = good(value);
    });
    return text;
  };
  const marks = ticks(low, high).flatMap((value) => [
    draw("line", {class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value)}),
    draw("text", {x: left - 6, y: y(value) + 4, "text-anchor": "end"},
      value >= 1e4 || value < 1e-3 ? value.toExponential(0).replace("+", "") : String(value))]);
  const same = JSON.stringify(answer.should) === JSON.stringify(answer.losses);
  $("curve").replaceChildren(draw("svg", {class: "plot", viewBox: `0 0 ${width} ${height}`,
    role: "img", "aria-label": `Loss over ${answer.steps} steps`}, ...marks,
  draw("text", {x: left, y: height - 8}, "step 1"),
  draw("text", {x: width - right, y: height - 8, "text-anchor": "end"}, String(answer.steps)),
  same ? null : draw("path", {class: "should", d: path(answer.should)}),
  draw("path", {class: "ahead", d: path(answer.losses)}),
  draw("path", {class: "curve", d: path(answer.losses, asked.at + 1)}),
  ...dots.filter((each) => each.step <= asked.at + 1).map((each) => draw("circle",
    {class: "valid", cx: x(each.step - 1), cy: y(each.loss), r: dots.length > 60 ? 1.5 : 2.4})),
  draw("line", {class: "now", x1: x(asked.at), x2: x(asked.at), y1: top, y2: height - bottom})));
}

/** Round numbers between two powers of ten: 1, 10, 100 ..., and 2 and 5 where there is room. */
function ticks(low, high) {
  const every = Math.max(1, Math.ceil((high - low) / 5));
  const found = [];
  for (let power = Math.floor(low); power <= high; power++) {
    for (const digit of high - low < 1.6 ? [1, 2, 5] : power % every ? [] : [1]) {
      const value = Number(`${digit}e${power}`), at = Math.log10(value);
      if (at >= low && at <= high) found.push(value);
    }
  }
  return found;
}

/** What the model says at the nearest step that was drawn. */
function fit() {
  const frame = answer.frames.reduce((best, each) => each.step <= asked.at + 1 ? each : best);
  const last = answer.frames.at(-1);
  const shown = asked.at === answer.losses.length - 1 ? last : frame;
  if (shown.plane) plane(shown);
  else straight(shown);
}

function straight(frame) {
  const {width, height} = FIT, range = [-6, 8];
  const x = (value) => 24 + (width - 48) * (value + 2) / 4;
  const y = (value) => height - 16 - (height - 32) * (value - range[0]) / (range[1] - range[0]);
  const ends = frame.line.map((value) => typeof value === "number"
    ? Math.max(-1e4, Math.min(1e4, value)) : null);
  const [w, b] = frame.params;
  $("fit-said").replaceChildren(frame.step ? `after step ${frame.step}  ` : "before the first step  ", make("span", {},
    `y = ${short(round(w[0][0]))} x ${b[0] < 0 ? "−" : "+"} ${short(round(b[0], true))}`));
  const parts = answer.data.x.map(([value], k) => draw("circle", {class: "point", cx: x(value),
    cy: y(answer.data.y[k][0]), r: 3}));
  parts.push(draw("line", {class: "truth", x1: x(-2), y1: y(-3), x2: x(2), y2: y(5)}));
  if (!ends.includes(null)) {
    parts.push(draw("line", {class: "fitted", x1: x(-2), y1: y(ends[0]), x2: x(2),
      y2: y(ends[1])}));
  }
  $("fit").replaceChildren(draw("svg", {class: "plot", viewBox: `0 0 ${width} ${height}`,
    role: "img", "aria-label": "Points, the true line and the fitted one"}, ...parts));
}

function round(value, positive = false) {
  if (typeof value !== "number") return value;
  return Number((positive ? Math.abs(value) : value).toPrecision(3));
}

function plane(frame) {
  const {field: [left, right, low, high], grid} = answer.data;
  const small = make("canvas", {width: grid, height: grid});
  const inside = small.getContext("2d"), pixels = inside.createImageData(grid, grid);
  const dark = document.documentElement.dataset.theme === "dark";
  const [zero, one, middle] = dark ? [[25, 62, 77], [104, 50, 24], [30, 33, 37]]
    : [[176, 216, 230], [246, 199, 171], [252, 250, 246]];
  for (let k = 0; k < grid * grid; k++) {
    const sure = parseInt(frame.plane.substr(2 * k, 2), 16) / 255;
    const side = sure > 0.5 ? one : zero, far = Math.abs(sure - 0.5) * 2;
    for (let c = 0; c < 3; c++) {
      pixels.data[4 * k + c] = middle[c] + (side[c] - middle[c]) * far;
    }
    pixels.data[4 * k + 3] = 255;
  }
  inside.putImageData(pixels, 0, 0);
  const {width, height} = FIT;
  const canvas = make("canvas", {width: 2 * width, height: 2 * height});
  const pen = canvas.getContext("2d");
  pen.imageSmoothingQuality = "high";
  pen.drawImage(small, 0, 0, 2 * width, 2 * height);
  const x = (value) => width * (value - left) / (right - left);
  const y = (value) => height * (high - value) / (high - low);
  const dot = ([px, py], [kind], r) => draw("circle", {class: kind ? "one" : "zero", cx: x(px),
    cy: y(py), r});
  $("fit-said").textContent = frame.step ? `how sure it is after step ${frame.step}`
    : "how sure it is before the first step";
  $("fit").replaceChildren(make("div", {class: "plane"}, canvas,
    draw("svg", {viewBox: `0 0 ${width} ${height}`, role: "img",
      "aria-label": "Two classes of points, and which of them the net takes each place for"},
    ...answer.data.x.map((point, k) => dot(point, answer.data.y[k], 4)),
    ...answer.data.held_x.map((point, k) => dot(point, answer.data.held_y[k], 2.6)))));
}
