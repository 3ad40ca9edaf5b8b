// A canvas that draws one trace, and what all widgets around such canvases share: theme, icons, buttons, legend.

import { blockCells, detailSteps } from "./detail.js";
import { frameState } from "./frame.js";
import { layoutFrame, measure } from "./layout.js";
import { paint } from "./paint.js";

/** One canvas that draws one trace. */
export class Stage {
  constructor(canvas) {
    this.canvas = canvas;
    this.ctx = canvas.getContext("2d", { alpha: false });
    this.open(null, null);
  }

  open(trace, detail) {
    [this.trace, this.detail, this.view, this.frame] = [trace, detail, null, null];
  }

  /** Lay out for a width in CSS pixels; `beside` as in `measure`. */
  fit(width, beside = null) {
    const dpr = window.devicePixelRatio || 1;
    const { trace, view } = this;
    const sizes = `${width}/${dpr}/${beside?.maxRows ?? trace.maxRows}/${beside?.maxWidth ?? trace.maxWidth}`;
    if (view?.sizes === sizes) return;
    this.view = { ...measure(trace, width, dpr, beside), sizes };
    const { height } = this.view;
    Object.assign(this.canvas, { width: Math.round(width * dpr), height: Math.round(height * dpr) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
  }

  /** @param {number} cycle @param {number} t in [0, 1] */
  draw(cycle, t, colours, { selected = "", pointed = "" } = {}) {
    const { trace, view } = this;
    if (this.frame?.cycle !== cycle || this.frame.cycles !== trace.meta.cycles) {
      this.frame = Object.assign(frameState(trace, cycle, 64), { cycles: trace.meta.cycles, cells: this.cells(cycle) });
    }
    this.layout = layoutFrame(this.frame, view, t);
    paint(this.ctx, this.layout, colours, { dpr: view.dpr, selected, pointed });
  }

  cells(cycle) {
    const { trace, detail } = this;
    if (!detail) return null;
    const found = new Map();
    for (const list of trace.bySlot) for (const stay of list ?? []) {
      if (trace.join[stay] > cycle || trace.leave[stay] <= cycle) continue;
      const steps = detailSteps(detail, trace.c.stay_request[stay], cycle);
      if (steps) found.set(stay, blockCells(steps, trace.meta.block_length));
    }
    return found;
  }

  /** The id of the row or queued request at a place, "" if there is none. */
  at(x, y) {
    const hit = this.layout?.areas.find((a) => y >= a.y - 2 && y <= a.y + a.h + 2 && x >= a.x - 2 && x <= a.x + a.w + 2);
    const row = hit ?? this.layout?.areas.find((a) => a.stay !== undefined && y >= a.y - 1 && y <= a.y + a.h + 1 && x > this.view.side);
    return row?.id ?? "";
  }

  /** Words instead of a batch. */
  say(text, colours) {
    const { width, height, dpr } = this.view;
    const labels = [{ text, x: width / 2, y: height / 2, align: "center", colour: "muted", size: 14 }];
    this.layout = { ...this.view, rects: [], lines: [], areas: [], labels };
    paint(this.ctx, this.layout, colours, { dpr });
    this.canvas.setAttribute("aria-label", text);
  }
}

// ---- theme

/** Whether the page around `el` is dark: the host's word if it gives one, else the first background behind `el`. */
export function isDark(el) {
  const { jpThemeLight, vscodeThemeKind, theme } = document.body.dataset;
  if (jpThemeLight) return jpThemeLight === "false";
  if (vscodeThemeKind) return vscodeThemeKind.includes("dark");
  const named = theme ?? document.documentElement.dataset.theme;
  if (named === "dark" || named === "light") return named === "dark";
  for (let at = el.parentElement; at; at = at.parentElement) {
    const [r, g, b, a = 1] = (getComputedStyle(at).backgroundColor.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
    if (a > 0.5) return 0.299 * r + 0.587 * g + 0.114 * b < 128;
  }
  const scheme = getComputedStyle(document.documentElement).colorScheme;
  return scheme.includes("dark") && matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Call `changed` whenever the page's theme may have changed; returns what ends that. */
export function watchTheme(changed) {
  const themed = new MutationObserver(changed);
  const attributeFilter = ["class", "style", "data-theme", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"];
  for (const target of [document.body, document.documentElement]) themed.observe(target, { attributes: true, attributeFilter });
  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", changed);
  return () => {
    themed.disconnect();
    scheme.removeEventListener("change", changed);
  };
}

/** Set the palette on `root` as --bs-* variables; returns it. */
export function applyTheme(root, palettes) {
  root.dataset.theme = isDark(root) ? "dark" : "light";
  const colours = palettes[root.dataset.theme];
  for (const [name, value] of Object.entries(colours)) root.style.setProperty(`--bs-${name.replaceAll("_", "-")}`, value);
  return colours;
}

export const reducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// ---- controls

const icon = (path) => `<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="${path}"/></svg>`;
export const ICONS = {
  first: icon("M2 3h2v10H2zM14 3v10L5 8z"), back: icon("M12 3v10L4 8z"), play: icon("M4 2v12l10-6z"),
  pause: icon("M3 2h4v12H3zM9 2h4v12H9z"), forward: icon("M4 3v10l8-5z"), last: icon("M12 3h2v10h-2zM2 3v10l9-5z"),
  stop: icon("M3 3h10v10H3z"),
};

/** A button of the control bar. */
export const control = (id, name, key, look = ICONS[id]) =>
  `<button type="button" data-testid="${id}" aria-label="${name}" title="${name}${key ? ` (${key})` : ""}">${look}</button>`;

export const PLAYBACK = [
  control("first", "First cycle", "Home"), control("back", "Step back", "←"), control("play", "Play", "space"),
  control("forward", "Step forward", "→"), control("last", "Last cycle", "End"),
].join("\n");

export const LEGEND = [
  ["prompt", "prompt"], ["finished", "finished block"], ["active", "active block"], ["masked", "still masked"],
  ["next", "next block"], ["padding", "padding"], ["reclaimed", "padding reclaimed"], ["ended", "ended here"],
  ["frozen", "after its end"],
];

export function legend(list) {
  for (const [kind, text] of LEGEND) {
    const item = document.createElement("li");
    item.append(Object.assign(document.createElement("i"), { className: `bs-swatch bs-${kind}` }), text);
    list.append(item);
  }
}
