// Two runs on one clock: a stage for each, running totals between them.

import { element } from "./panel.js";
import { departures, inflate, openTrace, unendedRows } from "./trace.js";
import { ICONS, PLAYBACK, Stage, applyTheme, legend, reducedMotion, watchTheme } from "./stage.js";

// ---------------------------------------------------------------------------------------------------- the clock

/** Where a trace stands when the clock does: `t` in [0, 1] of a cycle; `over`: it has come to its end. */
export function standing(trace, place, clock) {
  const { c, meta } = trace, last = meta.cycles - 1;
  if (last < 0) return { cycle: 0, t: 1, over: true };
  if (clock === "cycles") {
    const cycle = Math.max(0, Math.min(last, Math.ceil(place) - 1));
    return { cycle, t: Math.max(0, Math.min(1, place - cycle)), over: place >= meta.cycles };
  }
  let low = 0, high = meta.cycles; // the last cycle that has begun
  while (low < high) {
    const middle = (low + high) >> 1;
    if (c.cycle_start[middle] < place) low = middle + 1;
    else high = middle;
  }
  const cycle = Math.max(0, low - 1);
  const t = c.cycle_duration[cycle] > 0 ? (place - c.cycle_start[cycle]) / c.cycle_duration[cycle] : 1;
  return { cycle, t: Math.max(0, Math.min(1, t)), over: place >= endOf(trace, clock) };
}

/** Where the clock stands when a trace is at its end. */
export function endOf({ c, meta }, clock) {
  if (!meta.cycles) return 0;
  return clock === "cycles" ? meta.cycles : boundary(c, meta.cycles - 1);
}

const boundary = (c, cycle) => c.cycle_start[cycle] + c.cycle_duration[cycle];

/** The next place, after (`by` 1) or before (−1) this one, where a cycle of any trace ends. */
export function nextPlace(traces, place, clock, by) {
  const close = 1e-6;
  if (clock === "cycles") return by > 0 ? Math.floor(place + close) + 1 : Math.ceil(place - close) - 1;
  let best = by > 0 ? Infinity : 0;
  for (const { c, meta } of traces) {
    let low = 0, high = meta.cycles; // the first cycle that ends at `place` or later
    while (low < high) {
      const middle = (low + high) >> 1;
      if (boundary(c, middle) < place - close) low = middle + 1;
      else high = middle;
    }
    if (by < 0 && low > 0) best = Math.max(best, boundary(c, low - 1));
    while (by > 0 && low < meta.cycles && boundary(c, low) <= place + close) low++;
    if (by > 0 && low < meta.cycles) best = Math.min(best, boundary(c, low));
  }
  return best;
}

/** Running totals of a trace: `at(cycles)` gives them after that many whole cycles. */
export function totals(trace, slots) {
  const { c, meta } = trace;
  const sum = (values) => {
    const out = new Float64Array(meta.cycles + 1);
    for (let i = 0; i < meta.cycles; i++) out[i + 1] = out[i] + values[i];
    return out;
  };
  const valid = sum(c.cycle_valid), tokens = sum(c.cycle_tokens), unended = sum(unendedRows(trace));
  const { before } = departures(trace);
  return (cycles) => {
    const seconds = cycles ? boundary(c, cycles - 1) : 0;
    return {
      left: cycles ? (cycles < meta.cycles ? before(cycles) : departures(trace).order.length) : 0,
      valid: valid[cycles],
      rate: seconds ? valid[cycles] / seconds : 0,
      waste: tokens[cycles] ? 1 - valid[cycles] / tokens[cycles] : 0,
      ratio: cycles ? unended[cycles] / cycles / slots : 0,
    };
  };
}

// ---------------------------------------------------------------------------------------------------- the view

const METRICS = [
  ["left", "requests done", (v) => String(v)], ["valid", "valid tokens", (v) => String(v)],
  ["rate", "valid tokens/s", (v) => v.toFixed(v < 10 ? 1 : 0)], ["waste", "waste", (v) => `${(100 * v).toFixed(1)}%`],
  ["ratio", "R", (v) => v.toFixed(2)],
];
const HINTS = { waste: "Share of row-tokens that became no valid token", ratio: "Effective compute ratio (Eq. 2)" };
const DURATIONS = [5, 10, 20, 30, 60, 120, 300];
const WIDE = 920; // pixels from which there is room for two batches beside each other

const SIDE = (name) => `<section class="bs-side" data-testid="side-${name}">
    <div class="bs-side-head"><strong></strong><output class="bs-status"></output></div>
    <canvas class="bs-canvas" role="img"></canvas></section>`;

const SHELL_TWO = `
  <div class="bs-head"><span class="bs-title">Side by side</span><output class="bs-status" data-testid="status"></output></div>
  <div class="bs-sides">${SIDE("a")}<section class="bs-totals" aria-label="Running totals" data-testid="totals"></section>${SIDE("b")}</div>
  <div class="bs-track"><input type="range" data-testid="scrub" aria-label="Place on the clock" min="0" max="1" step="any"></div>
  <div class="bs-controls" role="group" aria-label="Playback">
    ${PLAYBACK}
    <button type="button" data-testid="part" title="Go to the first cycle in which the two schedules differ">Where they part</button>
    <span class="bs-space"></span>
    <label>Clock <select data-testid="clock" aria-label="Clock"><option value="wall">wall time</option><option value="cycles">cycles</option></select></label>
    <label>All in <select data-testid="seconds" aria-label="Seconds to play to the end"></select></label>
  </div>
  <ul class="bs-legend" aria-label="Legend"></ul>
  <p class="bs-note" data-testid="note" aria-live="polite"></p>`;

class ComparisonView {
  constructor(model, traces, el) {
    [this.model, this.traces, this.stops, this.playing] = [model, traces, [], false];
    this.root = Object.assign(document.createElement("div"), { className: "bs-player bs-comparison", tabIndex: 0, innerHTML: SHELL_TWO });
    Object.assign(this.root.dataset, { testid: "comparison", lmSuppressShortcuts: "true" });
    this.root.setAttribute("role", "region");
    this.root.setAttribute("aria-label", "Two runs side by side");
    el.append(this.root);
    this.at = (id) => this.root.querySelector(`[data-testid="${id}"]`);
    this.sides = traces.map((trace, i) => this.side(trace, i));
    legend(this.root.querySelector(".bs-legend"));
    this.fill();
    this.listen();
    this.theme();
    if (model.get("playing")) this.play();
  }

  side(trace, i) {
    const root = this.at(i ? "side-b" : "side-a");
    root.querySelector("strong").textContent = this.model.get("parts")[i].name;
    const stage = new Stage(root.querySelector("canvas"));
    stage.open(trace, null);
    return { root, stage, trace, totals: totals(trace, this.model.get("baseline_slots")), status: root.querySelector("output") };
  }

  fill() {
    const seconds = this.at("seconds"), now = this.model.get("seconds");
    for (const value of [...new Set([...DURATIONS, now])].sort((a, b) => a - b)) seconds.append(new Option(`${value} s`, value, false, value === now));
    this.at("clock").value = this.model.get("clock");
    this.bars = METRICS.map(([key, name, text]) => {
      const row = element("div", "bs-metric"), values = [0, 1].map(() => element("b")), bars = [0, 1].map(() => element("i"));
      const title = element("span", "bs-muted", key === "ratio" ? `R (of ${this.model.get("baseline_slots")})` : name);
      title.title = HINTS[key] ?? "";
      row.dataset.metric = key;
      bars.forEach((bar) => bar.append(element("u")));
      row.append(values[0], title, values[1], ...bars);
      this.at("totals").append(row);
      return { key, text, values, bars: bars.map((bar) => bar.firstChild) };
    });
    const part = this.model.get("parting");
    this.at("part").disabled = part.cycle === undefined;
    this.at("note").textContent = this.model.get("note");
  }

  listen() {
    const on = (target, type, handler) => {
      target.addEventListener(type, handler);
      this.stops.push(() => target.removeEventListener(type, handler));
    };
    const actions = { first: () => this.go(0), back: () => this.step(-1), play: () => this.toggle(), forward: () => this.step(1), last: () => this.go(Infinity), part: () => this.part() };
    for (const [id, action] of Object.entries(actions)) on(this.at(id), "click", action);
    on(this.at("scrub"), "input", (event) => this.go(Number(event.target.value) * this.end()));
    on(this.at("clock"), "change", (event) => this.setClock(event.target.value));
    on(this.at("seconds"), "change", (event) => this.write({ seconds: Number(event.target.value) }));
    on(this.root, "keydown", (event) => this.key(event));
    const follow = (name, handler) => {
      this.model.on(`change:${name}`, handler);
      this.stops.push(() => this.model.off(`change:${name}`, handler));
    };
    follow("place", () => !this.playing && this.show(this.model.get("place")));
    follow("clock", () => { this.at("clock").value = this.model.get("clock"); this.draw(); });
    follow("playing", () => (this.model.get("playing") ? this.play() : this.pause()));
    follow("seconds", () => { this.at("seconds").value = this.model.get("seconds"); });
    const sized = new ResizeObserver(() => this.draw());
    sized.observe(this.root);
    this.stops.push(() => sized.disconnect(), watchTheme(() => this.theme()), () => cancelAnimationFrame(this.request));
    this.place = this.model.get("place");
  }

  key(event) {
    const { tagName } = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || tagName === "SELECT") return;
    const actions = {
      " ": () => this.toggle(), ArrowLeft: () => this.step(-1), ArrowRight: () => this.step(1), Home: () => this.go(0), End: () => this.go(Infinity),
      "+": () => this.faster(-1), "=": () => this.faster(-1), "-": () => this.faster(1),
    };
    if (!(event.key in actions) || (event.key === " " && tagName === "BUTTON")) return;
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  faster(by) {
    const { options, selectedIndex } = this.at("seconds");
    const to = options[Math.max(0, Math.min(options.length - 1, selectedIndex + by))];
    this.at("seconds").value = to.value;
    this.write({ seconds: Number(to.value) });
  }

  write(values) {
    for (const [name, value] of Object.entries(values)) this.model.set(name, value);
    this.model.save_changes();
  }

  end(clock = this.model.get("clock")) {
    return Math.max(...this.traces.map((trace) => endOf(trace, clock)), 1e-9);
  }

  // ---- moving

  go(place) {
    this.pause();
    this.show(place === Infinity ? this.end() : place);
    this.write({ place: this.place });
  }

  show(place) {
    this.place = Math.max(0, Math.min(this.end(), place));
    this.draw();
  }

  step(by) {
    this.go(nextPlace(this.traces, this.place, this.model.get("clock"), by));
  }

  setClock(clock) {
    const share = this.place / this.end();
    this.write({ clock });
    this.go(share * this.end());
  }

  part() {
    const { cycle, what, why } = this.model.get("parting");
    this.write({ clock: "cycles" });
    this.go(cycle + 1);
    this.at("note").textContent = `They part in cycle ${cycle}: ${what} differ. ${why}`;
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.playing) return;
    if (this.place >= this.end()) this.place = 0;
    this.playing = true;
    this.write({ playing: true });
    this.buttons();
    let last = null;
    const tick = (time) => {
      if (!this.playing) return;
      const seconds = last === null ? 0 : Math.min(0.25, (time - last) / 1000);
      last = time;
      this.show(this.place + (seconds * this.end()) / this.model.get("seconds"));
      if (this.place >= this.end()) this.pause();
      else this.request = requestAnimationFrame(tick);
    };
    this.request = requestAnimationFrame(tick);
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.buttons();
    this.write({ place: this.place, playing: false });
    this.draw();
  }

  buttons() {
    this.at("play").innerHTML = this.playing ? ICONS.pause : ICONS.play;
    this.at("play").setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.root.dataset.playing = String(this.playing);
  }

  // ---- drawing

  theme() {
    this.colours = applyTheme(this.root, this.model.get("colours"));
    this.draw();
  }

  draw() {
    const width = Math.floor(this.root.clientWidth);
    if (width < 50 || !this.colours) return;
    this.root.classList.toggle("bs-wide", width >= WIDE);
    const clock = this.model.get("clock");
    const shown = this.sides.map((side) => this.drawSide(side, clock));
    this.drawTotals(shown);
    const unit = clock === "wall" ? `${this.place.toFixed(3)} of ${this.end().toFixed(3)} s` : `${Math.ceil(this.place)} of ${this.end()} cycles`;
    this.at("status").textContent = unit;
    this.at("scrub").value = this.place / this.end();
    this.at("scrub").setAttribute("aria-valuetext", unit);
    Object.assign(this.root.dataset, { ready: "true", place: String(this.place), cycles: shown.map((s) => s.cycle).join(" ") });
  }

  drawSide({ root, stage, trace, status }, clock) {
    const { cycle, t, over } = standing(trace, this.place, clock);
    const most = (name) => Math.max(...this.traces.map((other) => other[name]));
    const wide = this.root.classList.contains("bs-wide"); // beside each other they are of one height
    const beside = { maxRows: wide ? most("maxRows") : trace.maxRows, maxWidth: most("maxWidth") };
    stage.fit(Math.floor(root.clientWidth), beside);
    const still = this.playing && (reducedMotion() || this.hurried(trace));
    if (trace.meta.cycles) stage.draw(cycle, still ? 1 : t, this.colours);
    else stage.say("no cycles", this.colours);
    root.classList.toggle("bs-over", over);
    const end = `✓ done after ${trace.meta.cycles} cycles, ${endOf(trace, "wall").toFixed(2)} s`;
    status.textContent = over ? end : `cycle ${cycle} of ${trace.meta.cycles - 1}`;
    root.querySelector("canvas").setAttribute("aria-label", `${root.querySelector("strong").textContent}: ${status.textContent}`);
    return { cycle, done: trace.meta.cycles ? cycle + (t >= 1 ? 1 : 0) : 0 };
  }

  /** Whether cycles go by too fast for anything inside them to be seen. */
  hurried(trace) {
    return trace.meta.cycles / this.model.get("seconds") > 10;
  }

  drawTotals(shown) {
    const now = this.sides.map((side, i) => side.totals(shown[i].done));
    for (const { key, text, values, bars } of this.bars) {
      const most = Math.max(now[0][key], now[1][key], 1e-9);
      values.forEach((value, i) => {
        value.textContent = text(now[i][key]);
        bars[i].style.width = `${(100 * now[i][key]) / most}%`;
      });
    }
  }

  close() {
    this.playing = false;
    for (const stop of this.stops) stop();
    this.root.remove();
  }
}

async function openParts(model) {
  const data = model.get("data"), bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return Promise.all(model.get("parts").map(async ({ offset, length, spec, meta }) =>
    openTrace(spec, await inflate(bytes.slice(offset, offset + length), meta), meta)));
}

export default {
  async render({ model, el }) {
    const view = new ComparisonView(model, await openParts(model), el);
    return () => view.close();
  },
};
