// The frame of the page: which instrument is shown, light or dark.

import {$} from "./common.js";
import * as shapes from "./shapes.js";
import * as views from "./views.js";
import * as graph from "./graph.js";
import * as loop from "./loop.js";

const INSTRUMENTS = {
  broadcasting: () => { shapes.start(); views.start(); },
  graph: graph.start,
  loop: loop.start,
};
const names = Object.keys(INSTRUMENTS);
const started = new Set();

function show(name, focus = false) {
  for (const each of names) {
    const tab = $(`tab-${each}`), chosen = each === name;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    $(each).hidden = !chosen;
    if (chosen && focus) tab.focus();
  }
  if (!started.has(name)) {
    started.add(name);
    INSTRUMENTS[name]();
  }
  document.title = `${$(`tab-${name}`).textContent} · flambeau explore`;
}

function chosen() {
  const name = location.hash.slice(1);
  return names.includes(name) ? name : names[0];
}

for (const [place, name] of names.entries()) {
  const tab = $(`tab-${name}`);
  tab.addEventListener("click", () => { history.replaceState(null, "", `#${name}`); show(name); });
  tab.addEventListener("keydown", (event) => {
    const step = {ArrowRight: 1, ArrowLeft: -1}[event.key];
    if (!step) return;
    const next = names[(place + step + names.length) % names.length];
    history.replaceState(null, "", `#${next}`);
    show(next, true);
  });
}
addEventListener("hashchange", () => { if (names.includes(location.hash.slice(1))) show(chosen()); });

const dark = matchMedia("(prefers-color-scheme: dark)");
const THEMES = ["auto", "light", "dark"];
let theme = 0;

function paint() {
  const named = THEMES[theme];
  document.documentElement.dataset.theme = named === "auto" ? (dark.matches ? "dark" : "light")
    : named;
  $("theme").textContent = `theme: ${named}`;
  dispatchEvent(new Event("repaint"));
}

$("theme").addEventListener("click", () => { theme = (theme + 1) % THEMES.length; paint(); });
dark.addEventListener("change", paint);
for (const form of document.forms) form.addEventListener("submit", (event) => event.preventDefault());
paint();
show(chosen());
