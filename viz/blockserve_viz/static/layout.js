// Frame + view → Layout: everything to draw, as rectangles, lines and labels. Pure: the same frame, sizes and time give
// the same picture, so that tests know where every cell is.

import { committed } from "./frame.js";

// A cycle is played as: rows glide in (0 to ENTER), the block is denoised (to BOUNDARY), the boundary is shown (to 1).
const ENTER = 0.18;
const BOUNDARY = 0.78;

/** Where time `t` in [0, 1] of a cycle with `steps` steps lies: `glide` in [0, 1], `step` in [0, steps], `boundary`. */
export function phase(t, steps) {
  const part = Math.min(1, Math.max(0, (t - ENTER) / (BOUNDARY - ENTER)));
  const glide = Math.min(1, t / ENTER);
  return { glide: glide * glide * (3 - 2 * glide), step: part * steps, boundary: t >= BOUNDARY };
}

/**
 * @typedef {{kind: string, x: number, y: number, w: number, h: number, stay?: number, alpha?: number}} Rect
 * @typedef {{text: string, x: number, y: number, align: CanvasTextAlign, colour: string, size: number, bold?: boolean,
 *   alpha?: number}} Label
 * @typedef {{kind: string, x1: number, y1: number, x2: number, y2: number}} Line
 * @typedef {{width: number, height: number, scale: number, right: number, rects: Rect[], labels: Label[],
 *   lines: Line[], areas: {id: string, stay?: number, x: number, y: number, w: number, h: number}[]}} Layout  in CSS pixels,
 *   snapped to device pixels; `areas` are what can be pointed at: rows (with their stay) and queued requests
 */

const BEYOND = 5; // pixels between the block boundary and what lies beyond it

/**
 * Sizes that hold for a whole trace at one width, so that nothing jumps from cycle to cycle. `beside`: compact, next to
 * other traces, all at the scale of the largest.
 */
export function measure(trace, width, dpr = 1, beside = null) {
  const compact = beside !== null;
  const narrow = compact || width < 760;
  const side = compact ? 62 : narrow ? 88 : Math.min(190, Math.round(width * 0.155));
  const gutter = narrow ? 40 : 86;
  const tail = narrow ? 60 : 84; // room for a word
  const maxRows = beside?.maxRows ?? trace.maxRows, maxWidth = beside?.maxWidth ?? trace.maxWidth;
  const rows = Math.max(1, maxRows);
  const pitch = Math.max(4, Math.min(40, Math.floor(440 / rows)));
  const snap = (v) => Math.round(v * dpr) / dpr;
  const room = width - (compact ? side : 2 * side) - gutter - 24;
  const all = Math.max(1, maxWidth);
  const length = trace.meta.block_length;
  const scale = Math.min(26, Math.min(room / (all + length), (room - tail) / all));
  const used = scale * all + Math.max(tail, scale * length);
  const right = snap(side + 12 + gutter + scale * all + Math.max(0, room - used) / 2);
  const top = 66;
  return {
    width, dpr, narrow, compact, side, gutter, pitch, scale, right, top, snap,
    gap: pitch >= 14 ? 5 : pitch >= 7 ? 2 : 1,
    tail: Math.max(tail, scale * length),
    height: top + Math.max(rows * pitch, 132) + 30,
    font: narrow ? 11 : 12,
    maxQueued: Math.max(1, trace.maxQueued),
    order: trace.meta.order,
    prefix: trace.prefix,
  };
}

/**
 * Everything to draw for one frame. Pure: the same frame, sizes and time give the same rectangles.
 * @param {ReturnType<typeof frameState>} frame @param {ReturnType<typeof measure>} view @param {number} t in [0, 1]
 * @returns {Layout}
 */
export function layoutFrame(frame, view, t = 1) {
  const out = { width: view.width, height: view.height, scale: view.scale, right: view.right };
  const layout = { ...out, rects: [], labels: [], lines: [], areas: [] };
  const now = phase(t, frame.steps);
  now.boxWidth = between(frame.widthBefore ?? frame.width, frame.width, now.glide);
  now.boxRows = between(frame.widthBefore === null ? frame.rows.length : frame.rankBefore.size, frame.rows.length, now.glide);
  frame.rows.forEach((row, rank) => layoutRow(layout, frame, view, now, row, rank));
  layoutBox(layout, frame, view, now);
  layoutBudget(layout, frame, view);
  layoutQueue(layout, frame, view, now);
  if (!view.compact) layoutLeft(layout, frame, view, now);
  return layout;
}

const between = (from, to, share) => from + (to - from) * share;

function layoutRow(layout, frame, view, now, row, rank) {
  const { snap, pitch, gap, right, scale, top } = view;
  const length = frame.blockLength;
  const fresh = row.entered !== null;
  const from = frame.rankBefore.get(row.stay) ?? rank;
  const y = snap(top + between(from, rank, now.glide) * pitch);
  const h = snap(y + pitch - gap) - y;
  const moved = fresh ? -1.2 * length : row.frozen ? 0 : length; // it comes from where the frame before showed it
  const shift = frame.widthBefore === null ? 0 : moved * (1 - now.glide);
  const alpha = fresh && frame.widthBefore !== null ? now.glide : 1;
  const X = (tokens) => snap(right - (tokens - shift) * scale); // `tokens` left of the block boundary
  const put = (kind, a, b, extra) => layout.rects.push({ kind, x: X(a), y, w: X(b) - X(a), h, stay: row.stay, alpha, ...extra });
  const word = (text, a, b, colour, bold) => !row.frozen && label(layout, view, text, X(a), X(b), y, h, colour, alpha, bold);

  const far = X(row.width + row.padding);
  layout.areas.push({ id: row.id, stay: row.stay, x: far, y, w: right + BEYOND + (now.boundary && row.grows ? snap(length * scale) : 0) - far, h });
  const reclaimed = now.boundary ? row.reclaimed : 0;
  const boxLeft = now.boxWidth + shift; // padding fills the box, which does not move with the row
  if (reclaimed) put("reclaimed", boxLeft, boxLeft - reclaimed);
  if (boxLeft - reclaimed > row.width) put("padding", boxLeft - reclaimed, row.width);

  put("prompt", row.width, row.width - row.prompt);
  word(String(row.prompt), row.width, row.width - row.prompt, "prompt_text");
  let at = row.width - row.prompt;
  for (let b = 0; b < row.block; b++, at -= length) {
    put("finished", at, at - length);
    if (b <= row.block - row.past) word(`B${b}`, at, at - length, "finished_text");
  }
  layoutActive(frame, view, now, row, { put, word, X, at });
  at -= length;
  for (let s = 0; s < row.suffix; s++, at -= length) put(s === 0 && !row.frozen ? "next" : "suffix", at, at - length);
  if (row.frozen) put("frozen", row.width, 0);
  if (row.past) put("past", (row.past + row.suffix) * length, row.suffix * length);
  if (now.boundary && row.grows && row.suffix === 0) {
    const x = right + BEYOND, w = snap(length * scale);
    layout.rects.push({ kind: "next", x, y, w, h, stay: row.stay });
    label(layout, view, `B${row.block + 1}`, x, x + w, y, h, "next_text");
  }
  layoutMarks(layout, view, now, row, { y, h, alpha, X, entered: frame.widthBefore === null ? null : row.entered });
}

/** The active block: committed cells, cells being committed in this step, masked cells; orange once it ended the row. */
function layoutActive(frame, view, now, row, { put, word, X, at }) {
  const length = frame.blockLength;
  const own = row.steps ?? frame.steps;
  const whole = Math.floor(now.step + 1e-9);
  if (row.frozen) {
    put("finished", at, at - length);
    word(`B${row.block}`, at, at - length, "finished_text");
  } else if (row.ended && (now.boundary || whole >= own)) {
    put("ended", at, at - length);
    word(`✓ B${row.block}`, at, at - length, "ended_text", true) || word("✓", at, at - length, "ended_text", true);
  } else {
    const done = committed(row, whole, length, frame.steps);
    const soon = committed(row, whole + 1, length, frame.steps);
    const separate = (X(at - 1) - X(at)) >= 3;
    const known = separate ? frame.cells?.get(row.stay) : null; // step detail: the cells' true places
    if (known) return layoutKnown(known, { whole, now, put, at }) && row.past === 0 && now.boundary && word(`B${row.block}`, at, at - length, "active_text", true);
    const cells = (kind, from, to, extra) => {
      if (!separate && from < to) put(kind, at - from, at - to, extra);
      else for (let i = from; i < to; i++) put(kind, at - i, at - i - 1, { cell: true, ...extra });
    };
    cells("active", 0, done);
    cells("masked", done, length);
    if (now.step > whole) cells("active", done, soon, { alpha: now.step - whole });
    const full = now.step > whole ? soon : done; // the last cells of a block that is being completed fade in with its name
    if (!row.past && (now.boundary || full >= length)) word(`B${row.block}`, at, at - length, "active_text", true);
  }
}

function layoutKnown(cells, { whole, now, put, at }) {
  cells.forEach(({ step }, i) => {
    put(step < whole ? "active" : "masked", at - i, at - i - 1, { cell: true });
    if (step === whole && now.step > whole) put("active", at - i, at - i - 1, { cell: true, alpha: now.step - whole });
  });
  return true;
}

/** Ids, Refill and Expand left of the batch; Evict right of the block boundary. */
function layoutMarks(layout, view, now, row, { y, h, alpha, X, entered }) {
  const { font, narrow, pitch, right } = view;
  const middle = y + h / 2;
  if (pitch >= 11) {
    const size = Math.min(font, pitch - 2);
    const left = X(row.width + row.padding) - 8;
    const mark = entered === "refill" ? "Refill" : "Expand";
    const two = entered && pitch >= 25;
    const text = clip(row.id.slice(view.prefix.length), narrow ? 6 : two || !entered ? 13 : 6);
    const name = entered && !two && !narrow ? `${mark} ${text}` : text;
    layout.labels.push({ text: name, x: left, y: two ? middle - 7 : middle, align: "right", size, colour: entered ? "box" : "muted", alpha, bold: !!entered });
    if (two) layout.labels.push({ text: mark, x: left, y: middle + 7, align: "right", size: size - 1, colour: "box", alpha });
  } else if (entered) {
    layout.labels.push({ text: "▸", x: X(row.width + row.padding) - 2, y: middle, align: "right", size: 9, colour: "box", alpha });
  }
  if (!now.boundary || pitch < 7) return;
  const leaving = row.leaves === "preempted" ? [narrow ? "Preempt" : "↩ Preempt", "reclaimed_line"] : row.leaves ? ["✓ Evict", "box"] : null;
  const stays = row.ended && !row.leaves ? ["ended", "muted"] : null;
  const [text, colour] = leaving ?? stays ?? [];
  if (text) layout.labels.push({ text, x: right + 9, y: middle, align: "left", size: Math.min(font, pitch), colour, bold: !!leaving });
}

function layoutBox(layout, frame, view, now) {
  const { snap, right, scale, top, pitch, gap } = view;
  if (!frame.rows.length) return;
  const left = snap(right - now.boxWidth * scale);
  const bottom = snap(top + now.boxRows * pitch - gap);
  const pad = 3;
  layout.rects.push({ kind: "box", x: left - pad, y: top - pad, w: right + 2 - left + pad, h: bottom - top + 2 * pad });
  layout.lines.push({ kind: "boundary", x1: right + 2, y1: top - 12, x2: right + 2, y2: bottom + 12 });
  layout.labels.push({ text: "block boundary", x: right + 2, y: bottom + 21, align: "center", size: view.font - 1, colour: "box" });
  if (now.boundary && frame.edge !== null && frame.edge !== frame.width) {
    const x = snap(right - frame.edge * scale) - pad;
    layout.lines.push({ kind: "edge", x1: x, y1: top - 10, x2: x, y2: bottom + 12 });
    const shrinks = frame.edge < frame.width;
    const room = right - x > 190 && Math.abs(frame.edge - frame.width) * scale > 20;
    if (room) layout.labels.push({ text: shrinks ? "box shrinks to here" : "box grows to here", x, y: bottom + 21, align: "center", size: view.font - 1, colour: "box" });
  }
}

/** `rows × width = cost` and a bar: row tokens and padding against the budget. */
function layoutBudget(layout, frame, view) {
  const { snap, right, side, gutter, font, narrow } = view;
  const x = snap(side + 12 + (narrow ? 8 : gutter)), w = snap(right + view.tail) - x, y = snap(28), h = snap(12);
  const cost = frame.rows.length * frame.width;
  const padding = frame.rows.reduce((sum, row) => sum + row.padding, 0);
  const full = Math.max(cost, frame.budget ?? cost, 1);
  const at = (tokens) => snap(x + (w * tokens) / full);
  layout.rects.push({ kind: "bar_rest", x, y, w, h });
  layout.rects.push({ kind: "bar", x, y, w: at(cost - padding) - x, h });
  layout.rects.push({ kind: "bar_padding", x: at(cost - padding), y, w: at(cost) - at(cost - padding), h });
  const share = Math.round((100 * padding) / Math.max(1, cost));
  const text = `${frame.rows.length} × ${frame.width} = ${cost}${narrow ? "" : " tokens"}`;
  layout.labels.push({ text, x, y: 15, align: "left", size: font + 2, colour: "box", bold: true });
  const budget = frame.budget === null ? "no budget" : `β = ${frame.budget}`;
  layout.labels.push({ text: `${share}% padding · ${budget}`, x: x + w, y: 15, align: "right", size: font, colour: "text" });
}

function layoutQueue(layout, frame, view, now) {
  if (view.compact) return layoutThinQueue(layout, frame, view, now);
  const { snap, side, font, narrow, height } = view;
  const orders = { longest_first: "longest first", shortest_first: "shortest first", fifo: "by arrival" };
  layout.labels.push({ text: `Queue ${frame.waiting}`, x: 10, y: 15, align: "left", size: font + 1, colour: "text", bold: true });
  if (frame.queue.length) layout.labels.push({ text: orders[view.order] ?? "by arrival", x: 10, y: 34, align: "left", size: font - 1, colour: "muted" });
  const top = 48, pitch = 17, room = side - 20;
  const shown = Math.min(frame.queue.length, Math.floor((height - top - 22) / pitch));
  frame.queue.slice(0, shown).forEach((item, i) => {
    const tokens = item.prompt + item.block * frame.blockLength;
    const y = snap(top + i * pitch), h = snap(13);
    const full = snap(Math.max(6, room * Math.min(1, tokens / view.maxQueued)));
    const blue = item.block ? snap((full * item.prompt) / tokens) : full;
    layout.rects.push({ kind: "queued", x: 10, y, w: blue, h });
    if (item.block) layout.rects.push({ kind: "queued_finished", x: 10 + blue, y, w: full - blue, h });
    if (now.boundary && item.enters) layout.rects.push({ kind: "enters", x: 8, y: y - 2, w: full + 4, h: h + 4 });
    const text = clip(item.id.slice(view.prefix.length), narrow ? 6 : 12);
    const inside = full > text.length * font * 0.58 + 8;
    layout.areas.push({ id: item.id, x: 10, y, w: Math.max(full, room), h });
    layout.labels.push({ text, x: inside ? 15 : 10 + full + 5, y: y + h / 2, align: "left", size: font - 1.5, colour: inside ? "prompt_text" : "muted" });
  });
  const more = frame.waiting - shown;
  if (more > 0) layout.labels.push({ text: `+ ${more} more`, x: 10, y: top + shown * pitch + 7, align: "left", size: font - 1, colour: "muted" });
}

/** The queue as thin bars without names. */
function layoutThinQueue(layout, frame, view, now) {
  const { snap, side, font, height } = view;
  layout.labels.push({ text: `Queue ${frame.waiting}`, x: 8, y: 15, align: "left", size: font, colour: "text", bold: true });
  const top = 30, pitch = 5, room = side - 12;
  frame.queue.slice(0, Math.floor((height - top - 26) / pitch)).forEach((item, i) => {
    const tokens = item.prompt + item.block * frame.blockLength;
    const y = snap(top + i * pitch), w = snap(Math.max(3, room * Math.min(1, tokens / view.maxQueued)));
    layout.rects.push({ kind: now.boundary && item.enters ? "bar" : "queued", x: 8, y, w, h: snap(4) });
    layout.areas.push({ id: item.id, x: 8, y, w: room, h: pitch });
  });
}

/** Right: who leaves at this boundary, beside its row and with the reason; below them, paler, who left before. */
function layoutLeft(layout, frame, view, now) {
  const { side, font, width, top, pitch, height, narrow } = view;
  const x = width - side + 4, floor = height - 30;
  const put = (text, x, y, size, colour, bold) => layout.labels.push({ text, x, y, align: "left", size, colour, bold });
  const name = (id, most) => clip(id.slice(view.prefix.length), most);
  const gone = now.boundary ? frame.rows.map((row, rank) => ({ row, rank })).filter(({ row }) => row.leaves) : [];
  const evicted = gone.filter(({ row }) => row.leaves !== "preempted").length;
  put(`Left ${frame.gone.count + evicted}`, x, 15, font + 1, "text", true);
  const lines = gone.length * 32 > height - top - 30 ? 1 : 2; // the reason below the id, or beside it when many left
  const step = lines === 2 ? 32 : 17;
  let y = top - step;
  for (const [i, { row, rank }] of gone.entries()) {
    const beside = lines === 2 ? top + rank * pitch + pitch / 2 - 8 : 0;
    y = Math.max(y + step, beside);
    if (y > floor) return put(`+ ${gone.length - i} more`, x, y, font - 1, "muted");
    const back = row.leaves === "preempted";
    const short = lines === 1 ? ` · ${back ? "queued" : row.leaves}` : "";
    put(`${back ? "↩" : "✓"} ${name(row.id, narrow ? 9 : lines === 2 ? 18 : 12)}${short}`, x, y, font, back ? "reclaimed_line" : "text", true);
    if (lines === 2) put(back ? "in the queue" : reasonText(row.leaves), x + (narrow ? 0 : 14), y + 14, font - 1, "muted");
  }
  y = gone.length ? y + step + 8 : top + 8;
  for (const { id, reason } of frame.gone.last) {
    if (y > floor) break;
    put(`${name(id, narrow ? 5 : 11)} · ${reason}`, x, y, font - 1, "muted");
    y += 16;
  }
}

const reasonText = (reason) => ({ eos: "end token", stop: "stop string", length: "length limit" })[reason] ?? reason;

/** At most `most` characters; ids differ at their end, so the beginning or the middle goes. */
export function clip(text, most) {
  const letters = [...text];
  if (letters.length <= most) return text;
  const tail = most < 10 ? most - 1 : most >> 1;
  return `${letters.slice(0, most - 1 - tail).join("")}…${letters.slice(-tail).join("")}`;
}

/** A centred label, if it fits between x1 and x2; says whether it did. */
function label(layout, view, text, x1, x2, y, h, colour, alpha = 1, bold = false) {
  const size = Math.min(view.font, h - 3);
  if (size < 8 || x2 - x1 < text.length * size * 0.62 + 4) return false;
  layout.labels.push({ text, x: (x1 + x2) / 2, y: y + h / 2, align: "center", size, colour, alpha, bold });
  return true;
}
