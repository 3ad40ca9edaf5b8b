// The whole run on one strip: cost, padding and batch over time, with marks for who came and went. A range input lies
// over it, invisible but for its focus: the strip is the scrubber, for the pointer and the keyboard alike.

import { PREEMPTED } from "./trace.js";

export const MARKS = [
  ["admit", "in", "finished", "admitted"], ["evict", "out", "ended", "left"],
  ["preempt", "back", "reclaimed_line", "preempted"], ["refuse", "held", "muted", "refused"],
];
const CHART = 38; // pixels high
const LANE = 10;
export const STRIP_HEIGHT = 6 + CHART + 6 + MARKS.length * LANE + 4;
export const STRIP_LEFT = 46; // where the strip begins; left of it the lanes have names

/**
 * What happens at each cycle: how many requests enter at its start, leave at its end, are preempted at its start; and
 * whether some stay refused.
 */
export function events(trace) {
  const { c, meta, join, leave } = trace;
  const admit = new Uint16Array(meta.cycles), evict = new Uint16Array(meta.cycles), preempt = new Uint16Array(meta.cycles);
  for (let s = 0; s < join.length; s++) {
    admit[join[s]]++;
    if (c.stay_left[s] === PREEMPTED) {
      if (leave[s] < meta.cycles) preempt[leave[s]]++;
    } else if (c.stay_left[s]) evict[leave[s] - 1]++;
  }
  const refuse = Uint8Array.from(c.cycle_refused, (reasons) => (reasons ? 1 : 0));
  return { admit, evict, preempt, refuse };
}

/**
 * The run in at most `bins` columns. Of each: largest cost and the padding then, largest batch, and per mark the share
 * of its cycles in which it happens.
 */
export function overview(trace, bins) {
  const { c, meta } = trace;
  const count = Math.max(1, Math.min(Math.floor(bins), meta.cycles));
  const happen = events(trace);
  const out = { count, cost: new Float64Array(count), padding: new Float64Array(count), batch: new Float64Array(count) };
  for (const [kind] of MARKS) out[kind] = new Float64Array(count);
  for (let bin = 0; bin < count; bin++) {
    const from = Math.floor((bin * meta.cycles) / count), to = Math.floor(((bin + 1) * meta.cycles) / count);
    for (let cycle = from; cycle < to; cycle++) {
      const cost = c.cycle_batch[cycle] * c.cycle_width[cycle];
      if (cost >= out.cost[bin]) [out.cost[bin], out.padding[bin]] = [cost, c.cycle_padding[cycle]];
      out.batch[bin] = Math.max(out.batch[bin], c.cycle_batch[cycle]);
      for (const [kind] of MARKS) if (happen[kind][cycle]) out[kind][bin] += 1 / (to - from);
    }
  }
  let budget = -1;
  for (let cycle = 0; cycle < meta.cycles; cycle++) if (c.cycle_budget[cycle] > budget) budget = c.cycle_budget[cycle];
  out.budget = budget;
  out.maxCost = Math.max(1, budget, out.cost.reduce((a, b) => Math.max(a, b), 0));
  out.maxBatch = Math.max(1, out.batch.reduce((a, b) => Math.max(a, b), 0));
  return out;
}

/** Draw the strip, `width` CSS pixels wide. */
export function paintStrip(ctx, trace, colours, { width, dpr }) {
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.fillStyle = colours.panel;
  ctx.fillRect(0, 0, width, STRIP_HEIGHT);
  if (!trace.meta.cycles) return;
  const room = width - STRIP_LEFT - 10;
  const run = overview(trace, room * dpr);
  const X = (bin) => STRIP_LEFT + Math.round((bin * room * dpr) / run.count) / dpr;
  const floor = 6 + CHART, Y = (tokens) => floor - (CHART * tokens) / run.maxCost;
  for (let bin = 0; bin < run.count; bin++) {
    const x = X(bin), w = Math.max(1 / dpr, X(bin + 1) - x - (room / run.count > 5 ? 1 : 0));
    ctx.fillStyle = colours.bar_padding;
    ctx.fillRect(x, Y(run.cost[bin]), w, floor - Y(run.cost[bin]));
    ctx.fillStyle = colours.bar;
    ctx.fillRect(x, Y(run.cost[bin] - run.padding[bin]), w, floor - Y(run.cost[bin] - run.padding[bin]));
    paintMarks(ctx, run, bin, { x, w, y: floor + 6, colours });
  }
  paintCurves(ctx, run, colours, { X, Y, floor, right: STRIP_LEFT + room });
  paintNames(ctx, colours, floor);
}

function paintMarks(ctx, run, bin, { x, w, y, colours }) {
  MARKS.forEach(([kind, , colour], lane) => {
    if (!run[kind][bin]) return;
    const wide = Math.min(w, 6);
    ctx.globalAlpha = 0.35 + 0.65 * run[kind][bin];
    ctx.fillStyle = colours[colour];
    ctx.fillRect(x + (w - wide) / 2, y + lane * LANE + 1, wide, LANE - 4);
  });
  ctx.globalAlpha = 1;
}

/** The budget, dashed, and the rows of the batch as a stepped line. */
function paintCurves(ctx, run, colours, { X, Y, floor, right }) {
  ctx.lineWidth = 1.5;
  if (run.budget >= 0) {
    ctx.strokeStyle = colours.box;
    ctx.setLineDash([5, 4]);
    ctx.beginPath();
    ctx.moveTo(STRIP_LEFT, Y(run.budget));
    ctx.lineTo(right, Y(run.budget));
    ctx.stroke();
  }
  ctx.setLineDash([]);
  ctx.strokeStyle = colours.prompt;
  ctx.beginPath();
  for (let bin = 0; bin < run.count; bin++) {
    const y = floor - (CHART * 0.96 * run.batch[bin]) / run.maxBatch;
    ctx.lineTo(X(bin), y);
    ctx.lineTo(X(bin + 1), y);
  }
  ctx.stroke();
}

function paintNames(ctx, colours, floor) {
  ctx.font = "10px system-ui, 'DejaVu Sans', sans-serif";
  ctx.textAlign = "right";
  ctx.textBaseline = "middle";
  ctx.fillStyle = colours.muted;
  ctx.fillText("cost", STRIP_LEFT - 6, floor - CHART / 2 - 7);
  ctx.fillStyle = colours.prompt;
  ctx.fillText("rows", STRIP_LEFT - 6, floor - CHART / 2 + 7);
  ctx.fillStyle = colours.muted;
  MARKS.forEach(([, name], lane) => ctx.fillText(name, STRIP_LEFT - 6, floor + 6 + lane * LANE + LANE / 2 - 1));
}

/** One line on a cycle, for the pointer over the strip. */
export function cycleLine(trace, cycle, happen = events(trace)) {
  const { c } = trace;
  const rows = c.cycle_batch[cycle], width = c.cycle_width[cycle], cost = rows * width;
  const share = Math.round((100 * c.cycle_padding[cycle]) / Math.max(1, cost));
  const parts = [`cycle ${cycle} · ${rows} × ${width} = ${cost}`, `${share}% padding`];
  for (const [kind, , , verb] of MARKS.slice(0, 3)) if (happen[kind][cycle]) parts.push(`${happen[kind][cycle]} ${verb}`);
  return parts.join(" · ");
}
