// The player: one view of a model.

import { describe } from "./frame.js";
import { phase } from "./layout.js";
import { Panel, Tooltip, tipLines } from "./panel.js";
import { Quiz } from "./quiz.js";
import { ICONS, PLAYBACK, Stage, applyTheme, legend, reducedMotion, watchTheme } from "./stage.js";
import { STRIP_HEIGHT, STRIP_LEFT, cycleLine, events, paintStrip } from "./timeline.js";
import { REASONS, requestIndex } from "./trace.js";

const SPEEDS = [0.25, 0.5, 1, 2, 5, 20, 100]; // cycles a second

const SHELL = `
  <div class="bs-head"><span class="bs-title"></span><span class="bs-live" data-testid="live" hidden>● live</span>
    <output class="bs-status" data-testid="status"></output></div>
  <canvas class="bs-canvas" data-testid="canvas" role="img"></canvas>
  <div class="bs-strip"><canvas data-testid="strip" aria-hidden="true"></canvas><i class="bs-now"></i>
    <input type="range" data-testid="scrub" aria-label="Cycle" min="0" step="1"></div>
  <div class="bs-controls" role="group" aria-label="Playback">
    ${PLAYBACK}
    <button type="button" data-testid="stop" class="bs-stop" title="End the run; what is done is kept" hidden>${ICONS.stop} Stop</button>
    <span class="bs-space"></span>
    <label>Speed <select data-testid="speed" aria-label="Speed in cycles a second"></select></label>
    <button type="button" data-testid="quiz-toggle" aria-pressed="false" title="What happens at the next boundary?">Quiz</button>
    <span class="bs-muted" data-testid="score"></span>
  </div>
  <ul class="bs-legend" aria-label="Legend"></ul>
  <section class="bs-quiz" aria-label="Quiz"></section>
  <section class="bs-info" aria-label="Selected request"></section>`;

export class PlayerView {
  constructor(model, store, el) {
    [this.model, this.store] = [model, store];
    this.root = Object.assign(document.createElement("div"), { className: "bs-player", tabIndex: 0, innerHTML: SHELL });
    Object.assign(this.root.dataset, { testid: "batch-player", lmSuppressShortcuts: "true" });
    this.root.setAttribute("role", "region");
    this.root.setAttribute("aria-label", "Batch player");
    el.append(this.root);
    this.at = (id) => this.root.querySelector(`[data-testid="${id}"]`);
    this.stage = new Stage(this.at("canvas"));
    this.tip = new Tooltip(this.root);
    this.panel = new Panel(this.root.querySelector(".bs-info"), () => this.select(""));
    this.quiz = new Quiz(this.root.querySelector(".bs-quiz"), this.quizHost());
    [this.stops, this.playing, this.pointed, this.asked] = [[], false, "", null];
    legend(this.root.querySelector(".bs-legend"));
    this.fillSpeeds();
    this.load();
    this.listen();
    this.theme();
    if (model.get("playing")) this.play();
    if (model.get("quiz")) this.quiz.open(this.cycle);
    this.toggles();
  }

  // ---- what the model says

  load() {
    this.trace = this.store.trace;
    const { preset, model, status } = this.trace.meta;
    this.root.querySelector(".bs-title").textContent = [preset, model].filter(Boolean).join(" · ") || "batch";
    this.note = status === "complete" || status === "running" ? "" : ` · ${status}`;
    this.stage.open(this.trace, this.store.detail);
    const at = this.cycle ?? this.model.get("cycle");
    this.grown();
    [this.cycle, this.t] = [this.inside(at), 1];
  }

  /** The trace is longer than before. */
  grown() {
    const { cycles } = this.trace.meta;
    this.at("scrub").max = Math.max(0, cycles - 1);
    for (const button of this.root.querySelectorAll(".bs-controls button, .bs-strip input")) button.disabled = cycles === 0;
    this.happen = null;
    this.stripShown = null;
    this.stage.detail = this.store.detail;
  }

  changed(what) {
    if (what === "loaded") {
      this.load();
      if (this.following && !this.model.get("live")) this.end();
    } else {
      this.grown();
      this.stage.frame = null;
      this.panel.shown = null;
    }
    this.asked = null;
    this.root.dataset.cycles = String(this.trace.meta.cycles);
    if (!this.playing) this.draw();
  }

  /** The run that was followed is over: show its last cycle. */
  end() {
    this.following = false;
    this.pause();
    this.cycle = this.inside(Infinity);
    this.write("cycle", this.cycle);
  }

  inside(cycle) {
    const last = Math.max(0, this.trace.meta.cycles - 1);
    return Math.max(0, Math.min(last, cycle === Infinity ? last : Math.round(cycle) || 0));
  }

  write(name, value) {
    if (this.model.get(name) === value) return;
    this.model.set(name, value);
    this.model.save_changes();
  }

  follow(name, handler) {
    this.model.on(`change:${name}`, handler);
    this.stops.push(() => this.model.off(`change:${name}`, handler));
  }

  // ---- what the reader does

  fillSpeeds() {
    const speed = this.at("speed"), now = this.model.get("speed");
    this.speeds = [...new Set([...SPEEDS, now])].sort((a, b) => a - b);
    for (const value of this.speeds) speed.append(new Option(`${value} cycle${value === 1 ? "" : "s"}/s`, value, false, value === now));
  }

  listen() {
    const on = (target, type, handler) => {
      target.addEventListener(type, handler);
      this.stops.push(() => target.removeEventListener(type, handler));
    };
    on(this.at("first"), "click", () => this.go(0));
    on(this.at("back"), "click", () => this.go(this.cycle - 1));
    on(this.at("play"), "click", () => this.toggle());
    on(this.at("forward"), "click", () => this.go(this.cycle + 1));
    on(this.at("last"), "click", () => this.go(Infinity));
    on(this.at("stop"), "click", () => this.stop());
    on(this.at("scrub"), "input", (event) => this.go(Number(event.target.value), false));
    on(this.at("scrub"), "change", () => this.write("cycle", this.cycle));
    on(this.at("speed"), "change", (event) => this.write("speed", Number(event.target.value)));
    on(this.at("quiz-toggle"), "click", () => this.write("quiz", !this.model.get("quiz")));
    on(this.at("canvas"), "click", (event) => this.pick(event));
    on(this.at("canvas"), "pointermove", (event) => this.point(event));
    on(this.at("scrub"), "pointermove", (event) => this.pointStrip(event));
    for (const id of ["canvas", "scrub"]) on(this.at(id), "pointerleave", () => this.unpoint());
    on(this.root, "keydown", (event) => this.key(event));
    this.listenToModel();
    const sized = new ResizeObserver(() => this.draw());
    sized.observe(this.root);
    this.stops.push(() => sized.disconnect(), watchTheme(() => this.theme()), () => cancelAnimationFrame(this.request));
  }

  listenToModel() {
    this.follow("cycle", () => this.model.get("cycle") !== this.cycle && !this.playing && this.show(this.model.get("cycle")));
    this.follow("playing", () => (this.model.get("playing") ? this.play() : this.pause()));
    this.follow("speed", () => { this.at("speed").value = this.model.get("speed"); });
    this.follow("selected", () => this.draw());
    this.follow("live", () => this.toggles());
    this.follow("score", () => this.toggles());
    this.follow("quiz", () => {
      if (this.model.get("quiz")) this.quiz.open(this.cycle);
      else this.quiz.close();
      this.toggles();
    });
    const listener = (what) => this.changed(what);
    this.store.listeners.add(listener);
    this.stops.push(() => this.store.listeners.delete(listener));
  }

  key(event) {
    const { tagName, type } = event.target;
    if (event.ctrlKey || event.metaKey || event.altKey || tagName === "SELECT") return;
    const inQuiz = this.quiz.root.contains(event.target);
    const actions = {
      " ": () => this.toggle(), ArrowLeft: () => this.go(this.cycle - 1), ArrowRight: () => this.go(this.cycle + 1),
      Home: () => this.go(0), End: () => this.go(Infinity), Escape: () => this.select(""),
      ArrowUp: () => this.neighbour(-1), ArrowDown: () => this.neighbour(1),
      "+": () => this.faster(1), "=": () => this.faster(1), "-": () => this.faster(-1),
    };
    if (!(event.key in actions) || inQuiz) return;
    if (event.key === " " && tagName === "BUTTON") return; // space on a button presses it
    if (event.target === this.panel.text && event.key !== "Escape") return; // arrows scroll the text
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
    if (type === "range") this.write("cycle", this.cycle);
  }

  faster(by) {
    const at = this.speeds.indexOf(this.model.get("speed"));
    this.write("speed", this.speeds[Math.max(0, Math.min(this.speeds.length - 1, at + by))]);
    this.at("speed").value = this.model.get("speed");
  }

  /** Select the row above or below the selected one. */
  neighbour(by) {
    const rows = this.stage.frame?.rows ?? [];
    if (!rows.length) return;
    const at = rows.findIndex((row) => row.id === this.model.get("selected"));
    this.select(rows[at < 0 ? (by > 0 ? 0 : rows.length - 1) : Math.max(0, Math.min(rows.length - 1, at + by))].id);
  }

  select(id) {
    this.write("selected", id);
    this.draw();
  }

  pick(event) {
    const id = this.stage.at(event.offsetX, event.offsetY);
    this.select(id !== this.model.get("selected") ? id : "");
  }

  point(event) {
    const id = this.playing ? "" : this.stage.at(event.offsetX, event.offsetY);
    if (id) this.tip.show(tipLines(this.trace, this.cycle, id), ...this.place(event));
    else this.tip.hide();
    this.at("canvas").style.cursor = id ? "pointer" : "";
    if (id !== this.pointed) {
      this.pointed = id;
      if (!this.playing) this.draw();
    }
  }

  pointStrip(event) {
    const { width } = this.at("scrub").getBoundingClientRect();
    const cycle = this.inside((event.offsetX / width) * (this.trace.meta.cycles - 1));
    this.happen ??= events(this.trace);
    this.tip.show([cycleLine(this.trace, cycle, this.happen)], ...this.place(event));
  }

  place(event) {
    const { left, top } = this.root.getBoundingClientRect();
    return [event.clientX - left, event.clientY - top];
  }

  unpoint() {
    this.tip.hide();
    this.pointed = "";
    if (!this.playing) this.draw();
  }

  stop() {
    this.at("stop").disabled = true;
    this.at("stop").lastChild.textContent = " Stopping…";
    this.model.send({ type: "stop" });
  }

  toggles() {
    const live = this.model.get("live"), { asked, right } = this.model.get("score");
    this.at("live").hidden = !live;
    this.at("stop").hidden = live !== "follow";
    Object.assign(this.root.dataset, { live });
    this.at("quiz-toggle").setAttribute("aria-pressed", String(this.model.get("quiz")));
    this.at("score").textContent = asked ? `${right} of ${asked} right` : "";
  }

  quizHost() {
    return {
      trace: () => this.trace,
      ask: (cycle) => {
        this.pause();
        this.show(cycle);
        this.t = BEFORE;
        this.draw();
        this.write("cycle", this.cycle);
      },
      reveal: () => this.show(this.cycle),
      count: (right) => {
        const { asked, right: before } = this.model.get("score");
        this.write("score", { asked: asked + 1, right: before + Number(right) });
      },
    };
  }

  // ---- moving through the trace

  /** Go to the end of a cycle: the boundary, Figure 1's moment. */
  go(cycle, write = true) {
    this.following = false;
    if (this.playing) this.pause();
    this.show(cycle);
    if (write) this.write("cycle", this.cycle);
  }

  show(cycle) {
    [this.cycle, this.t] = [this.inside(cycle), 1];
    this.draw();
  }

  toggle() {
    if (!this.playing) return this.play();
    this.following = false;
    this.pause();
  }

  play() {
    const live = this.model.get("live");
    if (this.playing || (this.trace.meta.cycles === 0 && !live)) return;
    if (!live && this.cycle >= this.trace.meta.cycles - 1 && this.t >= 1) [this.cycle, this.t] = [0, 0];
    this.playing = true;
    this.following = Boolean(live);
    this.write("playing", true);
    this.buttons();
    let last = null;
    const tick = (time) => {
      if (!this.playing) return;
      this.advance(last === null ? 0 : (time - last) / 1000);
      last = time;
      if (this.playing) this.request = requestAnimationFrame(tick);
    };
    this.request = requestAnimationFrame(tick);
  }

  /** Move on by a frame's time. A run in progress is followed to its newest cycle, the faster the further behind. */
  advance(seconds) {
    const end = this.trace.meta.cycles, live = this.model.get("live");
    const now = this.cycle + this.t;
    const speed = live ? Math.max(this.model.get("speed"), 3 * (end - now)) : this.model.get("speed");
    const place = Math.max(0, Math.min(end, now + Math.min(seconds, 0.25) * speed));
    this.cycle = this.inside(Math.min(end - 1, Math.floor(place)));
    this.t = Math.min(1, place - this.cycle);
    this.draw();
    if (place >= end && !live) this.pause();
  }

  pause() {
    if (!this.playing) return;
    this.playing = false;
    cancelAnimationFrame(this.request);
    this.buttons();
    this.write("cycle", this.cycle);
    this.write("playing", false);
    this.draw();
  }

  buttons() {
    const play = this.at("play");
    play.innerHTML = this.playing ? ICONS.pause : ICONS.play;
    play.setAttribute("aria-label", this.playing ? "Pause" : "Play");
    this.root.dataset.playing = String(this.playing);
  }

  // ---- drawing

  theme() {
    this.colours = applyTheme(this.root, this.model.get("colours"));
    this.stripShown = null;
    this.draw();
  }

  draw() {
    const width = Math.floor(this.root.clientWidth);
    if (width < 50 || !this.colours) return; // not on the page yet
    this.stage.fit(width);
    this.drawStrip(width);
    if (this.trace.meta.cycles === 0) return this.empty();
    const still = reducedMotion() || (this.model.get("speed") > 10 && this.playing);
    const selected = this.model.get("selected");
    this.stage.draw(this.cycle, still && this.playing ? 1 : this.t, this.colours, { selected, pointed: this.pointed });
    this.root.__layout = this.stage.layout;
    this.report(still);
  }

  /** The strip is drawn anew only when it changes; the line over it moves. */
  drawStrip(width) {
    const dpr = window.devicePixelRatio || 1, shown = `${width}/${dpr}`;
    if (this.stripShown !== shown) {
      this.stripShown = shown;
      const canvas = this.at("strip");
      Object.assign(canvas, { width: Math.round(width * dpr), height: Math.round(STRIP_HEIGHT * dpr) });
      Object.assign(canvas.style, { width: `${width}px`, height: `${STRIP_HEIGHT}px` });
      paintStrip(canvas.getContext("2d", { alpha: false }), this.trace, this.colours, { width, dpr });
    }
    const { cycles } = this.trace.meta;
    const share = cycles ? (this.cycle + Math.min(1, Math.max(0, this.t) || 0)) / cycles : 0;
    this.root.querySelector(".bs-now").style.transform = `translateX(${STRIP_LEFT + share * (width - STRIP_LEFT - 10)}px)`;
  }

  empty() {
    const waits = this.trace.c.request_prompt.length;
    const text = this.model.get("live") ? "Waiting for the first cycle …" : "This trace has no cycles: nothing was ever in the batch.";
    this.stage.say(waits && !this.model.get("live") ? this.refusedOnly(waits) ?? text : text, this.colours);
    this.root.__layout = this.stage.layout;
    this.at("status").textContent = this.note.replace(" · ", "");
    this.panel.show({ trace: this.trace, id: "" });
    Object.assign(this.root.dataset, { cycle: "", ready: "true" });
  }

  /** For a trace whose requests were all turned away before any cycle. */
  refusedOnly(count) {
    const { request_done: done } = this.trace.c;
    const rejected = Array.from(done).filter((reason) => REASONS[reason] === "rejected").length;
    return rejected === count ? `No cycles: all ${count} requests were rejected, for none could ever fit.` : null;
  }

  report(still) {
    const { cycle, trace } = this, { frame } = this.stage;
    const text = `cycle ${cycle} of ${trace.meta.cycles - 1} · ${frame.start.toPrecision(3)} s`;
    const { step } = phase(still && this.playing ? 1 : this.t, frame.steps);
    const steps = frame.steps ? ` · step ${Math.min(frame.steps, Math.ceil(step))} of ${frame.steps}` : "";
    this.at("status").textContent = text + (this.stage.view.narrow ? "" : steps) + this.note;
    const scrub = this.at("scrub");
    if (scrub.value !== String(cycle)) scrub.value = cycle;
    if (!this.playing) this.canvasName(describe(frame));
    const id = this.model.get("selected");
    this.panel.show({ trace, detail: this.store.detail, cycle, step: Math.floor(step + 1e-9), id });
    this.askForDetail(id);
    Object.assign(this.root.dataset, { cycle: String(cycle), ready: "true" });
    this.root.readyAfter ??= performance.now(); // milliseconds from the page's start to its first picture
  }

  canvasName(text) {
    if (this.at("canvas").getAttribute("aria-label") !== text) this.at("canvas").setAttribute("aria-label", text);
  }

  /** Step detail may be here for other cycles only: a kernel, where there is one, sends those around this one. */
  askForDetail(id) {
    const { detail } = this.store;
    if (!id || !detail || detail.whole || requestIndex(this.trace, id) < 0) return;
    if ((this.cycle >= detail.from && this.cycle <= detail.to) || this.asked !== null) return;
    this.asked = this.cycle;
    this.model.send({ type: "detail", cycle: this.cycle });
  }

  close() {
    this.playing = false;
    for (const stop of this.stops) stop();
    this.root.remove();
  }
}

const BEFORE = 0.7799; // of a cycle: everything is denoised, the boundary is not shown yet
