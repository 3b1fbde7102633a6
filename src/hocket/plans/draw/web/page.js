"use strict";
// The page: it shows what play.js says, one panel for each plan, all at the same step.

const FLIGHT = 700, PAUSE = 650; // milliseconds of a step: while chunks move, and while one looks at what they made
const MOST_CHIPS = 400;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const byId = (id) => document.getElementById(id);

function add(parent, name, attributes = {}, text = "") {
  const node = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  node.textContent = text;
  parent.append(node);
  return node;
}

/** `1 step`, `2 steps`. */
function many(number, what) {
  return `${number} ${what}${number === 1 ? "" : "s"}`;
}

/** What a slot holds: "?" where something was read that was never written. */
function told(held) {
  return held === undefined ? "" : Number.isNaN(held.value) ? "?" : String(held.value);
}

/** One plan: its table of slots, ranks across, and what a step changes in it. */
class Panel {
  constructor(plan, parent) {
    this.plan = plan;
    Object.assign(this, play(plan));
    this.cells = new Map();
    const name = `${plan.collective} ${plan.algorithm}`;
    this.node = add(parent, "section", { class: "panel", "aria-label": name });
    const head = add(this.node, "h2", {}, `${plan.algorithm} `);
    add(head, "small", {}, `${plan.collective}, ${many(plan.size, "rank")}${plan.root ? `, root ${plan.root}` : ""}`);
    const sent = Number(plan.bytes.toPrecision(3));
    add(this.node, "p", { class: "facts" }, `${many(plan.rounds, "round")} · ${many(plan.messages, "message")} · ${sent} S sent by the busiest rank`);
    this.track = add(add(this.node, "div", { class: "track", "aria-hidden": "true" }), "i");
    this.stage = add(add(this.node, "div", { class: "wide", tabindex: "0", role: "group", "aria-label": `${name}: what the ranks hold` }), "div", { class: "stage" });
    this.table();
    this.arrows = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.arrows.setAttribute("class", "arrows");
    this.arrows.setAttribute("aria-hidden", "true");
    this.stage.append(this.arrows);
    this.now = add(this.node, "p", { class: "now" });
  }

  table() {
    const { plan } = this;
    const table = add(this.stage, "table");
    const top = add(add(table, "thead"), "tr");
    add(top, "td", { colspan: 2, class: "none" });
    for (let rank = 0; rank < plan.size; rank++) add(top, "th", { scope: "col" }, `r${rank}`);
    for (const [buffer, chunks] of this.rows()) {
      const body = add(table, "tbody");
      if (this.cells.size) add(add(body, "tr", { class: "gap", "aria-hidden": "true" }), "td", { colspan: plan.size + 2 });
      chunks.forEach((chunk, index) => {
        const row = add(body, "tr");
        if (index === 0) add(row, "th", { class: "buffer", scope: "rowgroup", rowspan: chunks.length }, BUFFERS[buffer]);
        add(row, "th", { scope: "row", "aria-label": `${BUFFERS[buffer]} chunk ${chunk}` }, String(chunk));
        for (let rank = 0; rank < plan.size; rank++) {
          this.cells.set(slot(buffer, rank, chunk), add(row, "td", { "data-slot": slot(buffer, rank, chunk) }));
        }
      });
    }
  }

  /** The buffers that the plan uses, and which chunks of them. */
  rows() {
    const every = Array.from({ length: this.plan.chunks }, (_, chunk) => chunk);
    const used = this.moves.flat().flatMap(({ from, to }) => [from, to]).filter(({ buffer }) => buffer === TMP);
    const tmp = [...new Set(used.map(({ chunk }) => chunk))].sort((a, b) => a - b);
    return [[INP, this.plan.shows_inp ? every : []], [TMP, tmp], [OUT, every]].filter(([, chunks]) => chunks.length);
  }

  /** What there is after `step` steps; with `flight` milliseconds, the last of them is seen to happen. */
  show(step, flight) {
    const steps = this.moves.length, at = Math.min(step, steps);
    const made = step > 0 && step <= steps ? this.moves[step - 1] : [];
    const land = () => {
      for (const chip of this.stage.querySelectorAll(".chip")) chip.remove();
      this.fill(this.states[at], at === steps);
      this.draw(made);
    };
    clearTimeout(this.landing);
    land();
    if (flight && made.length && made.length <= MOST_CHIPS) {
      this.fill(this.states[at - 1], false);
      this.draw(made);
      this.fly(made, flight);
      this.landing = setTimeout(land, flight);
    }
    this.say(at, made);
    this.track.style.width = `${steps ? (100 * at) / steps : 100}%`;
  }

  fill(slots, ended) {
    for (const [key, cell] of this.cells) {
      const held = slots.get(key);
      const [buffer, rank, chunk] = key.split(" ");
      const want = buffer === "out" ? this.plan.want[rank][chunk] : null;
      cell.textContent = told(held);
      cell.className = buffer;
      cell.removeAttribute("title");
      cell.style.removeProperty("--share");
      if (buffer === "out" && want === null && held === undefined) cell.classList.add("none");
      if (buffer === "out" && want !== null && held?.value === want) cell.classList.add("done");
      else if (ended && want !== null) cell.classList.add("missing");
      if (held === undefined || !held.of.length) continue;
      const share = this.plan.collective.match(/reduce|scan/) ? held.of.length / this.plan.size : 1;
      cell.style.setProperty("--hue", String((205 + (360 * held.of[0][1]) / Math.max(this.plan.chunks, 3)) % 360));
      cell.style.setProperty("--share", String(0.1 + 0.32 * Math.min(share, 1)));
      const parts = held.of.map(([r, c]) => `r${r}'s ${c}`).join(" + ");
      cell.title = `r${rank}.${buffer}[${chunk}] = ${held.value}${held.of.length ? `: ${parts}` : ""}`;
    }
  }

  center(key) {
    const cell = this.cells.get(key);
    return [cell.offsetLeft + cell.offsetWidth / 2, cell.offsetTop + cell.offsetHeight / 2];
  }

  draw(made) {
    this.arrows.replaceChildren();
    for (const { folds, from, to } of made) {
      const kind = folds ? "folds" : "copies";
      this.cells.get(to.key).classList.add(kind);
      const [[x, y], [x2, y2]] = [this.center(from.key), this.center(to.key)];
      const path = document.createElementNS("http://www.w3.org/2000/svg", "path");
      const bend = from.chunk === to.chunk && from.buffer === to.buffer ? -Math.min(26, 6 + Math.abs(x2 - x) / 14) : 0;
      path.setAttribute("d", `M${x} ${y}Q${(x + x2) / 2} ${(y + y2) / 2 + bend} ${x2} ${y2}`);
      path.setAttribute("class", kind);
      this.arrows.append(path);
    }
  }

  say(at, made) {
    const sent = this.moves.slice(0, at).reduce((sum, moves) => sum + messages(moves), 0);
    const steps = this.moves.length;
    this.now.replaceChildren();
    if (at < steps || made.length) {
      const what = at === 0 ? "before the first step" : `${many(messages(made), "message")} in this step, ${sent} so far`;
      add(this.now, "span", {}, `Step ${at} of ${steps}: ${what}. `);
    }
    if (at < steps) return;
    const lacking = wrong(this.plan, this.states[at]);
    const ended = lacking ? `${many(lacking, "value")} not what ${this.plan.collective} promises.` : `All is as ${this.plan.collective} promises.`;
    add(this.now, "b", { class: lacking ? "wrong" : "right" }, `After ${many(steps, "step")}: ${lacking ? "✗" : "✓"} ${ended}`);
  }

  /** Chips fly from where chunks are read to where they are to be written. */
  fly(made, flight) {
    for (const { folds, from, to } of made) {
      const kind = folds ? "chip folds" : "chip";
      const chip = add(this.stage, "span", { class: kind, "aria-hidden": "true" }, this.cells.get(from.key).textContent || "?");
      const [[x, y], [x2, y2]] = [this.center(from.key), this.center(to.key)];
      const at = (x, y, scale) => `translate(${x - chip.offsetWidth / 2}px, ${y - chip.offsetHeight / 2}px) scale(${scale})`;
      chip.style.left = chip.style.top = "0";
      const frames = [{ transform: at(x, y, 1) }, { transform: at((x + x2) / 2, (y + y2) / 2 - 8, 1.15) }, { transform: at(x2, y2, 0.9) }];
      chip.animate(frames, { duration: flight, easing: "ease-in-out", fill: "both" });
    }
  }
}

const plans = JSON.parse(byId("plans").textContent);
const panels = plans.map((plan) => new Panel(plan, byId("panels")));
const last = Math.max(...panels.map((panel) => panel.moves.length));
let step = 0, timer = null;

function go(to, moves = false) {
  const flight = moves && to === step + 1 && !still.matches ? FLIGHT / Number(byId("speed").value) : 0;
  step = Math.min(Math.max(to, 0), last);
  for (const panel of panels) panel.show(step, flight);
  byId("at").value = String(step);
  byId("where").textContent = `Step ${step} of ${last}`;
  for (const [name, off] of [["first", step === 0], ["back", step === 0], ["next", step === last], ["last", step === last]]) {
    document.querySelector(`[data-do=${name}]`).disabled = off;
  }
  if (!timer) announce();
}

/** To who hears the page: not while it plays. */
function announce() {
  byId("said").textContent = panels.map((panel) => `${panel.plan.algorithm}: ${panel.now.textContent}`).join(" ");
}

function pause() {
  clearTimeout(timer);
  timer = null;
  setPlay("Play");
  announce();
}

function setPlay(word) {
  const button = document.querySelector("[data-do=play]");
  button.textContent = word;
  button.setAttribute("aria-label", word);
}

function tick() {
  if (step === last) return pause();
  timer = setTimeout(tick, (FLIGHT + PAUSE) / Number(byId("speed").value));
  go(step + 1, true);
}

function toggle() {
  if (timer) return pause();
  if (step === last) go(0);
  setPlay("Pause");
  tick();
}

const deeds = {
  first: () => { pause(); go(0); },
  back: () => { pause(); go(step - 1); },
  play: toggle,
  next: () => { pause(); go(step + 1, true); },
  last: () => { pause(); go(last); },
};
const keys = { " ": "play", ArrowLeft: "back", ArrowRight: "next", Home: "first", End: "last" };

for (const button of document.querySelectorAll("[data-do]")) button.addEventListener("click", () => deeds[button.dataset.do]());
byId("at").max = String(last);
byId("at").addEventListener("input", (event) => { pause(); go(Number(event.target.value)); });
addEventListener("keydown", (event) => {
  if (!keys[event.key] || event.ctrlKey || event.altKey || event.metaKey || event.target.matches("select")) return;
  if (event.key === " " && event.target.matches("button")) return; // it presses the button
  event.preventDefault();
  deeds[keys[event.key]]();
});
addEventListener("resize", () => go(step));

const { base } = plans[0];
byId("begin").textContent = `What each rank gives can be known again: rank 2's chunk 3 is ${3 * base + 3}. A slot's colour is its chunk; it deepens with each rank that is in its sum.`;
go(Number(new URLSearchParams(location.hash.slice(1)).get("step") ?? 0)); // page.html#step=3
