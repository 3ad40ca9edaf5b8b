// The batch player: one plain ES module, no imports, no build. A trace arrives as typed columns (frames.py says
// which); everything from there to a list of rectangles is pure and exported, so that tests know where every cell
// is; only the last two sections touch the page.
//
//   1 columns → Trace      2 Trace + cycle → Frame      3 Frame + view → Layout      4 painting      5 the view

// ---------------------------------------------------------------------------------------------- 1 columns → Trace

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
const REASONS = ["", "eos", "stop", "length", "cancelled", "error", "rejected"];
const WHYS = ["", "head", "fits", "grow", "held", "readmitted"];
const LEFT = ["", "preempted", ...REASONS.slice(1)];
const PREEMPTED = 1;
const NEVER = 0xffffffff;

/**
 * Typed-array views of the columns; a constant column is filled in.
 * @param {{name: string, dtype: string, offset: number, length: number, constant?: number}[]} spec
 * @param {DataView | ArrayBuffer | Uint8Array} data
 * @returns {Record<string, any>}
 */
export function decodeColumns(spec, data) {
  let { buffer, byteOffset, byteLength } = ArrayBuffer.isView(data) ? data : new DataView(data);
  if (byteOffset % 8) [buffer, byteOffset] = [buffer.slice(byteOffset, byteOffset + byteLength), 0];
  const columns = {};
  for (const { name, dtype, offset, length, constant } of spec) {
    const Column = ARRAYS[dtype];
    columns[name] = constant === undefined ? new Column(buffer, byteOffset + offset, length) : new Column(length).fill(constant);
  }
  return columns;
}

/** Running totals: out[i] = values[0] + … + values[i − 1]; one longer than values. */
export function starts(values) {
  const out = new Uint32Array(values.length + 1);
  for (let i = 0; i < values.length; i++) out[i + 1] = out[i] + values[i];
  return out;
}

/**
 * @typedef {object} Trace  columns, constants, and the indexes that find any cycle by binary search
 * @property {Record<string, any>} c
 * @property {{cycles: number, block_length: number, suffix: number, order: string, [k: string]: any}} meta
 */

/** @returns {Trace} */
export function openTrace(spec, data, meta) {
  const c = decodeColumns(spec, data);
  const stays = c.stay_request.length;
  const join = new Uint32Array(stays);
  for (let cycle = 0, s = 0; cycle < meta.cycles; cycle++) for (let n = c.cycle_joins[cycle]; n > 0; n--) join[s++] = cycle;
  const leave = join.map((from, s) => from + c.stay_length[s]);
  const trace = { c, meta, join, leave, stays, bySlot: staysBySlot(c.stay_slot), idEnds: starts(c.id_length) };
  trace.maxRows = c.cycle_batch.reduce((a, b) => Math.max(a, b), 0);
  trace.maxWidth = c.cycle_width.reduce((a, b) => Math.max(a, b), 0);
  trace.maxQueued = c.request_prompt.reduce((a, b) => Math.max(a, b), 0);
  trace.rowFirst = starts(c.stay_length);
  trace.stepFirst = c.commit_count ? starts(c.step_count) : null;
  trace.waits = queueWaits(trace);
  trace.prefix = sharedPrefix(trace);
  return trace;
}

/** What all ids begin with, up to a mark such as "-": labels leave it out. */
function sharedPrefix(trace) {
  const { idEnds, c } = trace;
  const count = idEnds.length - 1;
  if (count < 2) return "";
  const text = c.id_text;
  let shared = idEnds[1];
  for (let i = 1; i < count && shared > 0; i++) {
    shared = Math.min(shared, idEnds[i + 1] - idEnds[i]);
    for (let k = 0; k < shared; k++) if (text[idEnds[i] + k] !== text[k]) shared = k;
  }
  return /^.*[-_:/. ]/.exec(new TextDecoder().decode(text.subarray(0, shared)))?.[0] ?? "";
}

/** Stays of each slot in order of joining: no two of them overlap, so a binary search finds the one at a cycle. */
function staysBySlot(slots) {
  const lists = [];
  for (let s = 0; s < slots.length; s++) (lists[slots[s]] ??= []).push(s);
  return Array.from(lists, (list) => Uint32Array.from(list ?? []));
}

/** Every wait in the queue (request, from, to, block), sorted as the scheduler sorts; indexes break ties as it does. */
function queueWaits(trace) {
  const { c, meta, join, leave } = trace;
  const since = Uint32Array.from(c.request_arrival);
  const block = new Uint32Array(since.length);
  const waits = [];
  const add = (request, from, to) => { if (from < to) waits.push({ request, from, to, block: block[request] }); };
  for (let s = 0; s < trace.stays; s++) {
    const request = c.stay_request[s];
    add(request, since[request], join[s]);
    since[request] = c.stay_left[s] === PREEMPTED ? leave[s] : NEVER;
    block[request] = c.stay_block[s] + c.stay_length[s];
  }
  for (let request = 0; request < since.length; request++) add(request, since[request], Math.min(meta.cycles, c.request_gone[request]));
  const sign = { longest_first: -1, shortest_first: 1 }[meta.order] ?? 0;
  const key = (w) => sign * (c.request_prompt[w.request] + w.block * meta.block_length);
  return waits.sort((a, b) => key(a) - key(b) || a.request - b.request);
}

/** @returns {string} the id of a request by index */
export function requestId(trace, request) {
  const text = trace.c.id_text.subarray(trace.idEnds[request], trace.idEnds[request + 1]);
  return new TextDecoder().decode(text);
}

// ---------------------------------------------------------------------------------------- 2 Trace + cycle → Frame

/** Stays in the batch at a cycle, by slot. */
export function presentStays(trace, cycle) {
  const present = [];
  for (const list of trace.bySlot) {
    let low = 0, high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (trace.join[list[middle]] <= cycle) low = middle + 1;
      else high = middle;
    }
    if (low > 0 && trace.leave[list[low - 1]] > cycle) present.push(list[low - 1]);
  }
  return present;
}

/** Block index: one more each cycle, the same while the row is frozen. */
const blockAt = ({ c, join }, stay, cycle) => c.stay_block[stay] + Math.min(cycle - join[stay], c.stay_active[stay] - 1);

function suffixAt(trace, stay, block) {
  const rest = trace.c.request_blocks[trace.c.stay_request[stay]] - 1 - block;
  return trace.meta.suffix < 0 ? rest : Math.min(trace.meta.suffix, rest);
}

function widthAt(trace, stay, cycle) {
  const block = blockAt(trace, stay, cycle);
  return trace.c.request_prompt[trace.c.stay_request[stay]] + (block + 1 + suffixAt(trace, stay, block)) * trace.meta.block_length;
}

/** Tokens by which the row is wider in the next cycle; 0 when it is not in it. */
const growthAt = (trace, stay, cycle) =>
  trace.leave[stay] > cycle + 1 ? widthAt(trace, stay, cycle + 1) - widthAt(trace, stay, cycle) : 0;

/**
 * The batch in one cycle, with what happens at the boundary after it. Lengths in tokens; `edge` is where the box's
 * left edge lies after the boundary, measured from this cycle's right edge; `reclaimed`: padding a row then has less.
 * @param {Trace} trace @param {number} cycle @param {number} queueLimit how many queued requests to list
 */
export function frameState(trace, cycle, queueLimit = Infinity) {
  const { c, meta } = trace;
  const stays = presentStays(trace, cycle);
  const before = cycle > 0 ? presentStays(trace, cycle - 1) : [];
  const slotsBefore = new Set(before.map((s) => c.stay_slot[s]));
  const width = c.cycle_width[cycle];
  const staying = cycle + 1 < meta.cycles && stays.some((s) => trace.leave[s] > cycle + 1);
  const grow = stays.reduce((most, s) => Math.max(most, growthAt(trace, s, cycle)), 0);
  const edge = staying ? c.cycle_width[cycle + 1] - grow : null;
  const rows = stays.map((s) => rowState(trace, s, cycle, { width, slotsBefore }));
  const budget = c.cycle_budget[cycle] < 0 ? null : c.cycle_budget[cycle];
  const steps = c.cycle_steps[cycle];
  return {
    cycle, rows, width, budget, steps, edge,
    blockLength: meta.block_length,
    start: c.cycle_start[cycle],
    widthBefore: cycle > 0 ? c.cycle_width[cycle - 1] : null,
    rankBefore: new Map(before.map((s, rank) => [s, rank])),
    waiting: c.cycle_queue[cycle],
    queue: queueAt(trace, cycle, queueLimit),
  };
}

function rowState(trace, stay, cycle, { width, slotsBefore }) {
  const { c, join, leave } = trace;
  const request = c.stay_request[stay];
  const block = blockAt(trace, stay, cycle);
  const end = c.request_end[request];
  const own = widthAt(trace, stay, cycle);
  const frozen = cycle >= join[stay] + c.stay_active[stay];
  const padding = width - own;
  const staysOn = leave[stay] > cycle + 1;
  const paddingNext = staysOn ? c.cycle_width[cycle + 1] - widthAt(trace, stay, cycle + 1) : padding;
  const at = trace.rowFirst[stay] + cycle - join[stay];
  return {
    stay, slot: c.stay_slot[stay],
    id: requestId(trace, request),
    block, prompt: c.request_prompt[request], suffix: suffixAt(trace, stay, block), width: own, padding,
    frozen,
    past: frozen ? 0 : Math.max(0, block - end), // blocks worked on after its output was complete
    steps: c.step_count ? c.step_count[at] : null,
    commits: trace.stepFirst ? Array.from(c.commit_count.subarray(trace.stepFirst[at], trace.stepFirst[at + 1])) : null,
    entered: join[stay] !== cycle ? null : slotsBefore.has(c.stay_slot[stay]) ? "refill" : "expand",
    why: WHYS[c.stay_why[stay]],
    ended: block === end && !frozen ? REASONS[c.request_reason[request]] : null,
    leaves: staysOn || !c.stay_left[stay] ? null : LEFT[c.stay_left[stay]],
    grows: growthAt(trace, stay, cycle) > 0,
    reclaimed: Math.max(0, padding - paddingNext),
  };
}

/** The first `limit` queued requests in the queue's order; `enters`: admitted at the boundary after this cycle. */
function queueAt(trace, cycle, limit) {
  const { c, join } = trace;
  const entering = new Set();
  for (const s of cycle + 1 < trace.meta.cycles ? presentStays(trace, cycle + 1) : [])
    if (join[s] === cycle + 1) entering.add(c.stay_request[s]);
  const queue = [];
  for (const { request, from, to, block } of trace.waits) {
    if (queue.length >= limit) break;
    if (from <= cycle && cycle < to)
      queue.push({ id: requestId(trace, request), prompt: c.request_prompt[request], block, enters: entering.has(request) });
  }
  return queue;
}

/** Positions of the row's block committed after `done` whole steps; even steps where the trace has no commits. */
export function committed(row, done, blockLength, steps) {
  if (row.commits) return row.commits.slice(0, done).reduce((a, b) => a + b, 0);
  const own = row.steps ?? steps;
  return own ? Math.round((blockLength * Math.min(done, own)) / own) : blockLength;
}

// A cycle is played as: rows glide in (0 to ENTER), the block is denoised (to BOUNDARY), the boundary is shown (to 1).
const ENTER = 0.18;
const BOUNDARY = 0.78;

/** Where time `t` in [0, 1] of a cycle with `steps` steps lies: `glide` in [0, 1], `step` in [0, steps], `boundary`. */
export function phase(t, steps) {
  const part = Math.min(1, Math.max(0, (t - ENTER) / (BOUNDARY - ENTER)));
  const glide = Math.min(1, t / ENTER);
  return { glide: glide * glide * (3 - 2 * glide), step: part * steps, boundary: t >= BOUNDARY };
}

// ----------------------------------------------------------------------------------------- 3 Frame + view → Layout

/**
 * @typedef {{kind: string, x: number, y: number, w: number, h: number, stay?: number, alpha?: number}} Rect
 * @typedef {{text: string, x: number, y: number, align: CanvasTextAlign, colour: string, size: number, bold?: boolean,
 *   alpha?: number}} Label
 * @typedef {{kind: string, x1: number, y1: number, x2: number, y2: number}} Line
 * @typedef {{width: number, height: number, scale: number, right: number, rects: Rect[], labels: Label[],
 *   lines: Line[], rowAreas: {id: string, stay: number, y: number, h: number}[]}} Layout  in CSS pixels, snapped to
 *   device pixels
 */

const BEYOND = 5; // pixels between the block boundary and what lies beyond it

/** Sizes that hold for a whole trace at one width, so that nothing jumps from cycle to cycle. */
export function measure(trace, width, dpr = 1) {
  const narrow = width < 760;
  const side = narrow ? 88 : Math.min(190, Math.round(width * 0.155));
  const gutter = narrow ? 40 : 86;
  const tail = narrow ? 60 : 84; // room for a word
  const rows = Math.max(1, trace.maxRows);
  const pitch = Math.max(4, Math.min(40, Math.floor(440 / rows)));
  const snap = (v) => Math.round(v * dpr) / dpr;
  const room = width - 2 * side - gutter - 24;
  const all = Math.max(1, trace.maxWidth);
  const length = trace.meta.block_length;
  const scale = Math.min(26, Math.min(room / (all + length), (room - tail) / all));
  const used = scale * all + Math.max(tail, scale * length);
  const right = snap(side + 12 + gutter + scale * all + Math.max(0, room - used) / 2);
  const top = 66;
  return {
    width, dpr, narrow, side, gutter, pitch, scale, right, top, snap,
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
  const layout = { ...out, rects: [], labels: [], lines: [], rowAreas: [] };
  const now = phase(t, frame.steps);
  now.boxWidth = between(frame.widthBefore ?? frame.width, frame.width, now.glide);
  now.boxRows = between(frame.widthBefore === null ? frame.rows.length : frame.rankBefore.size, frame.rows.length, now.glide);
  frame.rows.forEach((row, rank) => layoutRow(layout, frame, view, now, row, rank));
  layoutBox(layout, frame, view, now);
  layoutBudget(layout, frame, view);
  layoutQueue(layout, frame, view, now);
  layoutLeft(layout, frame, view, now);
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

  layout.rowAreas.push({ id: row.id, stay: row.stay, y, h });
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
    const cells = (kind, from, to, extra) => {
      if (!separate && from < to) put(kind, at - from, at - to, extra);
      else for (let i = from; i < to; i++) put(kind, at - i, at - i - 1, { cell: true, ...extra });
    };
    cells("active", 0, done);
    cells("masked", done, length);
    if (now.step > whole) cells("active", done, soon, { alpha: now.step - whole });
    if (!row.past && (now.boundary || done >= length)) word(`B${row.block}`, at, at - length, "active_text", true);
  }
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
    layout.labels.push({ text, x: inside ? 15 : 10 + full + 5, y: y + h / 2, align: "left", size: font - 1.5, colour: inside ? "prompt_text" : "muted" });
  });
  const more = frame.waiting - shown;
  if (more > 0) layout.labels.push({ text: `+ ${more} more`, x: 10, y: top + shown * pitch + 7, align: "left", size: font - 1, colour: "muted" });
}

function layoutLeft(layout, frame, view, now) {
  const { side, font, width, top, pitch, height, narrow } = view;
  const x = width - side + 4;
  const put = (text, x, y, size, colour, bold) => layout.labels.push({ text, x, y, align: "left", size, colour, bold });
  put("Left", x, 15, font + 1, "text", true);
  if (!now.boundary) return;
  const gone = frame.rows.map((row, rank) => ({ row, rank })).filter(({ row }) => row.leaves);
  const lines = gone.length * 32 > height - top - 30 ? 1 : 2; // the reason below the id, or beside it when many left
  const step = lines === 2 ? 32 : 17;
  let y = top - step;
  for (const [i, { row, rank }] of gone.entries()) {
    const beside = lines === 2 ? top + rank * pitch + pitch / 2 - 8 : 0;
    y = Math.max(y + step, beside);
    if (y > height - 30) {
      put(`+ ${gone.length - i} more`, x, y, font - 1, "muted");
      break;
    }
    const back = row.leaves === "preempted";
    const short = lines === 1 ? ` · ${back ? "queued" : row.leaves}` : "";
    put(`${back ? "↩" : "✓"} ${clip(row.id.slice(view.prefix.length), narrow ? 9 : lines === 2 ? 18 : 12)}${short}`, x, y, font, back ? "reclaimed_line" : "text", true);
    if (lines === 2) put(back ? "in the queue" : reasonText(row.leaves), x + (narrow ? 0 : 14), y + 14, font - 1, "muted");
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

// ---------------------------------------------------------------------------------------------------- 4 painting

const FONT = "system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif";
const FILLS = {
  queued: "prompt", queued_finished: "finished", bar: "bar", bar_padding: "bar_padding", bar_rest: "panel",
  suffix: "masked",
};

/** @param {CanvasRenderingContext2D} ctx @param {Layout} layout @param {Record<string, string>} colours */
export function paint(ctx, layout, colours, { dpr, selected }) {
  ctx.setTransform(dpr, 0, 0, dpr, 0, 0);
  ctx.fillStyle = colours.surface;
  ctx.fillRect(0, 0, layout.width, layout.height);
  const pixel = 1 / dpr;
  for (const rect of layout.rects) paintRect(ctx, rect, colours, pixel);
  ctx.globalAlpha = 1;
  for (const line of layout.lines) {
    stroke(ctx, colours.box, line.kind === "edge" ? 2 : 1.5, [5, 4]);
    ctx.beginPath();
    ctx.moveTo(line.x1, line.y1);
    ctx.lineTo(line.x2, line.y2);
    ctx.stroke();
  }
  const area = layout.rowAreas.find((a) => a.id === selected);
  if (area) {
    stroke(ctx, colours.text, 2, []);
    const boxed = layout.rects.filter((r) => r.stay === area.stay);
    const left = Math.min(...boxed.map((r) => r.x)), end = Math.max(...boxed.map((r) => r.x + r.w));
    ctx.strokeRect(left - 2, area.y - 2, end - left + 4, area.h + 4);
  }
  paintLabels(ctx, layout.labels, colours);
}

function stroke(ctx, colour, width, dashes) {
  ctx.strokeStyle = colour;
  ctx.lineWidth = width;
  ctx.setLineDash(dashes);
}

function paintRect(ctx, rect, colours, pixel) {
  const { kind, x, y, w, h } = rect;
  if (w <= 0) return;
  ctx.globalAlpha = rect.alpha ?? 1;
  if (kind === "box" || kind === "enters") {
    stroke(ctx, colours.box, kind === "box" ? 2 : 1.5, kind === "box" ? [7, 4] : []);
    ctx.beginPath(); // the box's right side is the block boundary, a line of its own
    ctx.moveTo(x + w, y);
    ctx.lineTo(x, y);
    ctx.lineTo(x, y + h);
    ctx.lineTo(x + w, y + h);
    if (kind === "enters") ctx.closePath();
    ctx.stroke();
  } else if (kind === "frozen" || kind === "past") {
    hatch(ctx, rect, colours);
  } else {
    const seam = w > 4 * pixel ? pixel : 0; // a hairline between neighbours
    ctx.fillStyle = colours[FILLS[kind] ?? kind];
    ctx.fillRect(x, y, w - seam, h);
    if (kind === "masked" || kind === "suffix") outline(ctx, x, y, w - seam, h, colours.masked_line, pixel, []);
    if (kind === "next") outline(ctx, x, y, w - seam, h, colours.next_line, Math.max(1, pixel), [4, 3]);
    if (kind === "bar_rest") outline(ctx, x, y, w, h, colours.line, pixel, []);
    if (kind === "reclaimed") cross(ctx, rect, colours.reclaimed_line);
  }
}

function outline(ctx, x, y, w, h, colour, width, dashes) {
  if (w <= 2 * width || h <= 2 * width) return;
  stroke(ctx, colour, width, dashes);
  ctx.strokeRect(x + width / 2, y + width / 2, w - width, h - width);
}

function cross(ctx, { x, y, w, h }, colour) {
  const arm = Math.min(w, h) * 0.28;
  if (arm < 1.5) return;
  stroke(ctx, colour, Math.max(1, arm / 3), []);
  const cx = x + w / 2, cy = y + h / 2;
  ctx.beginPath();
  ctx.moveTo(cx - arm, cy - arm);
  ctx.lineTo(cx + arm, cy + arm);
  ctx.moveTo(cx - arm, cy + arm);
  ctx.lineTo(cx + arm, cy - arm);
  ctx.stroke();
}

/** Ended and waiting: veiled with the background, and diagonal lines over it. */
function hatch(ctx, { x, y, w, h }, colours) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(x, y, w, h);
  ctx.clip();
  ctx.globalAlpha = 0.5;
  ctx.fillStyle = colours.surface;
  ctx.fillRect(x, y, w, h);
  ctx.globalAlpha = 0.6;
  stroke(ctx, colours.hatch, 1.5, []);
  ctx.beginPath();
  for (let at = x - h; at < x + w; at += 8) {
    ctx.moveTo(at, y + h);
    ctx.lineTo(at + h, y);
  }
  ctx.stroke();
  ctx.restore();
}

function paintLabels(ctx, labels, colours) {
  ctx.textBaseline = "middle";
  for (const { text, x, y, align, colour, size, bold, alpha } of labels) {
    ctx.globalAlpha = alpha ?? 1;
    ctx.font = `${bold ? "600 " : ""}${size}px ${FONT}`;
    ctx.textAlign = align;
    ctx.fillStyle = colours[colour];
    ctx.fillText(text, x, y);
  }
  ctx.globalAlpha = 1;
}

// ---------------------------------------------------------------------------------------------------- 5 the view

const SPEEDS = [0.25, 0.5, 1, 2, 5, 20, 100]; // cycles a second
const LEGEND = [
  ["prompt", "prompt"], ["finished", "finished block"], ["active", "active block"], ["masked", "still masked"],
  ["next", "next block"], ["padding", "padding"], ["reclaimed", "padding reclaimed"], ["ended", "ended here"],
  ["frozen", "after its end"],
];

const icon = (path) => `<svg viewBox="0 0 16 16" width="14" height="14" aria-hidden="true"><path d="${path}"/></svg>`;
const ICONS = {
  first: icon("M2 3h2v10H2zM14 3v10L5 8z"), back: icon("M12 3v10L4 8z"), play: icon("M4 2v12l10-6z"),
  pause: icon("M3 2h4v12H3zM9 2h4v12H9z"), forward: icon("M4 3v10l8-5z"), last: icon("M12 3h2v10h-2zM2 3v10l9-5z"),
};

const SHELL = `
  <div class="bs-head"><span class="bs-title"></span><output class="bs-status" data-testid="status"></output></div>
  <canvas class="bs-canvas" data-testid="canvas" role="img"></canvas>
  <div class="bs-controls" role="group" aria-label="Playback">
    <button type="button" data-testid="first" aria-label="First cycle" title="First cycle (Home)">${ICONS.first}</button>
    <button type="button" data-testid="back" aria-label="Step back" title="Step back (←)">${ICONS.back}</button>
    <button type="button" data-testid="play" class="bs-play" aria-label="Play" title="Play or pause (space)">${ICONS.play}</button>
    <button type="button" data-testid="forward" aria-label="Step forward" title="Step forward (→)">${ICONS.forward}</button>
    <button type="button" data-testid="last" aria-label="Last cycle" title="Last cycle (End)">${ICONS.last}</button>
    <input type="range" data-testid="scrub" aria-label="Cycle" min="0" step="1">
    <label>Speed <select data-testid="speed" aria-label="Speed in cycles a second"></select></label>
  </div>
  <ul class="bs-legend" aria-label="Legend"></ul>`;

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

class PlayerView {
  constructor(model, el) {
    this.model = model;
    this.root = Object.assign(document.createElement("div"), { className: "bs-player", tabIndex: 0, innerHTML: SHELL });
    Object.assign(this.root.dataset, { testid: "batch-player", lmSuppressShortcuts: "true" });
    this.root.setAttribute("role", "region");
    this.root.setAttribute("aria-label", "Batch player");
    el.append(this.root);
    this.at = (id) => this.root.querySelector(`[data-testid="${id}"]`);
    this.canvas = this.at("canvas");
    this.ctx = this.canvas.getContext("2d", { alpha: false });
    this.stops = [];
    this.playing = false;
    this.fillControls();
    this.load();
    this.listen();
    this.theme();
    if (model.get("playing")) this.play();
  }

  // ---- what the model says

  load() {
    this.trace = openTrace(this.model.get("spec"), this.model.get("data"), this.model.get("meta"));
    const { cycles, preset, model, status } = this.trace.meta;
    this.root.querySelector(".bs-title").textContent = [preset, model].filter(Boolean).join(" · ") || "batch";
    this.note = status === "complete" ? "" : ` · ${status}`;
    this.at("scrub").max = Math.max(0, cycles - 1);
    for (const control of this.root.querySelectorAll("button, input")) control.disabled = cycles === 0;
    this.view = null;
    this.frame = null;
    this.cycle = this.inside(this.model.get("cycle"));
    this.t = 1;
  }

  inside(cycle) {
    return Math.max(0, Math.min(this.trace.meta.cycles - 1, Math.round(cycle) || 0));
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

  fillControls() {
    const speed = this.at("speed");
    const now = this.model.get("speed");
    for (const value of [...new Set([...SPEEDS, now])].sort((a, b) => a - b))
      speed.append(new Option(`${value} cycle${value === 1 ? "" : "s"}/s`, value, false, value === now));
    const legend = this.root.querySelector(".bs-legend");
    for (const [kind, text] of LEGEND) {
      const item = document.createElement("li");
      const swatch = Object.assign(document.createElement("i"), { className: `bs-swatch bs-${kind}` });
      item.append(swatch, text);
      legend.append(item);
    }
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
    on(this.at("scrub"), "input", (event) => this.go(Number(event.target.value), false));
    on(this.at("scrub"), "change", () => this.write("cycle", this.cycle));
    on(this.at("speed"), "change", (event) => this.write("speed", Number(event.target.value)));
    on(this.canvas, "click", (event) => this.pick(event));
    on(this.root, "keydown", (event) => this.key(event));
    this.follow("cycle", () => this.model.get("cycle") !== this.cycle && this.show(this.model.get("cycle")));
    this.follow("playing", () => (this.model.get("playing") ? this.play() : this.pause()));
    this.follow("speed", () => { this.at("speed").value = this.model.get("speed"); });
    this.follow("selected", () => this.draw());
    this.follow("data", () => { this.load(); this.draw(); });
    const sized = new ResizeObserver(() => this.draw());
    sized.observe(this.root);
    const themed = new MutationObserver(() => this.theme());
    for (const target of [document.body, document.documentElement])
      themed.observe(target, { attributes: true, attributeFilter: ["class", "style", "data-theme", "data-jp-theme-light", "data-jp-theme-name", "data-vscode-theme-kind"] });
    on(matchMedia("(prefers-color-scheme: dark)"), "change", () => this.theme());
    this.stops.push(() => sized.disconnect(), () => themed.disconnect(), () => cancelAnimationFrame(this.request));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.tagName === "SELECT") return;
    const onButton = event.target.tagName === "BUTTON";
    const actions = {
      " ": () => this.toggle(), ArrowLeft: () => this.go(this.cycle - 1), ArrowRight: () => this.go(this.cycle + 1),
      Home: () => this.go(0), End: () => this.go(Infinity), Escape: () => this.write("selected", ""),
    };
    if (!(event.key in actions) || (event.key === " " && onButton)) return; // space on a button presses it
    event.preventDefault();
    event.stopPropagation();
    actions[event.key]();
  }

  pick(event) {
    const y = event.offsetY;
    const area = this.root.__layout?.rowAreas.find((a) => y >= a.y - 1 && y <= a.y + a.h + 1);
    this.write("selected", area && area.id !== this.model.get("selected") ? area.id : "");
    this.draw();
  }

  // ---- moving through the trace

  /** Go to the end of a cycle: the boundary, Figure 1's moment. */
  go(cycle, write = true) {
    if (this.playing) this.pause();
    this.show(cycle === Infinity ? this.trace.meta.cycles - 1 : cycle);
    if (write) this.write("cycle", this.cycle);
  }

  show(cycle) {
    this.cycle = this.inside(cycle);
    this.t = 1;
    this.draw();
  }

  toggle() {
    if (this.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.playing || this.trace.meta.cycles === 0) return;
    if (this.cycle >= this.trace.meta.cycles - 1 && this.t >= 1) [this.cycle, this.t] = [0, 0];
    this.playing = true;
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

  advance(seconds) {
    const end = this.trace.meta.cycles;
    const place = Math.min(end, this.cycle + this.t + Math.min(seconds, 0.25) * this.model.get("speed"));
    this.cycle = Math.min(end - 1, Math.floor(place));
    this.t = Math.min(1, place - this.cycle);
    this.draw();
    if (place >= end) this.pause();
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
    const dark = isDark(this.root);
    this.root.dataset.theme = dark ? "dark" : "light";
    this.colours = this.model.get("colours")[dark ? "dark" : "light"];
    for (const [name, value] of Object.entries(this.colours)) this.root.style.setProperty(`--bs-${name.replaceAll("_", "-")}`, value);
    this.draw();
  }

  draw() {
    const width = Math.floor(this.canvas.parentElement.clientWidth - 2);
    if (width < 50 || !this.colours) return; // not on the page yet
    const dpr = window.devicePixelRatio || 1;
    if (this.view?.width !== width || this.view.dpr !== dpr) this.resize(width, dpr);
    if (this.trace.meta.cycles === 0) return this.empty();
    if (this.frame?.cycle !== this.cycle) this.frame = frameState(this.trace, this.cycle, 64);
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches || this.model.get("speed") > 10;
    const layout = layoutFrame(this.frame, this.view, still ? 1 : this.t);
    paint(this.ctx, layout, this.colours, { dpr, selected: this.model.get("selected") });
    this.root.__layout = layout;
    this.report();
  }

  resize(width, dpr) {
    this.view = measure(this.trace, width, dpr);
    const { height } = this.view;
    Object.assign(this.canvas, { width: Math.round(width * dpr), height: Math.round(height * dpr) });
    Object.assign(this.canvas.style, { width: `${width}px`, height: `${height}px` });
  }

  empty() {
    const text = "This trace has no cycles: nothing was ever in the batch.";
    const labels = [{ text, x: this.view.width / 2, y: this.view.height / 2, align: "center", colour: "muted", size: 14 }];
    const layout = { ...this.view, rects: [], lines: [], rowAreas: [], labels };
    paint(this.ctx, layout, this.colours, { dpr: this.view.dpr });
    this.root.__layout = layout;
    this.canvas.setAttribute("aria-label", text);
    Object.assign(this.root.dataset, { cycle: "", ready: "true" });
  }

  report() {
    const { cycle, trace, frame } = this;
    const text = `cycle ${cycle} of ${trace.meta.cycles - 1} · ${frame.start.toPrecision(3)} s`;
    const { step } = phase(this.t, frame.steps);
    const steps = frame.steps ? ` · step ${Math.min(frame.steps, Math.ceil(step))} of ${frame.steps}` : "";
    this.at("status").textContent = text + (this.view.narrow ? "" : steps) + this.note;
    if (this.at("scrub").value !== String(cycle)) this.at("scrub").value = cycle;
    if (!this.playing) this.canvas.setAttribute("aria-label", describe(frame));
    Object.assign(this.root.dataset, { cycle: String(cycle), ready: "true" });
  }
}

/** One sentence for a screen reader. */
export function describe(frame) {
  const cost = frame.rows.length * frame.width;
  const left = frame.rows.filter((r) => r.leaves).map((r) => `${r.id} left (${r.leaves})`);
  const entered = frame.rows.filter((r) => r.entered).map((r) => r.id);
  const parts = [`Cycle ${frame.cycle}: ${frame.rows.length} rows of ${frame.width} tokens, cost ${cost}`];
  if (frame.budget !== null) parts.push(`budget ${frame.budget}`);
  if (entered.length) parts.push(`entered: ${entered.join(", ")}`);
  return [...parts, ...left, `${frame.waiting} waiting`].join("; ");
}

function render({ model, el }) {
  const view = new PlayerView(model, el);
  return () => {
    view.playing = false;
    for (const stop of view.stops) stop();
    view.root.remove();
  };
}

export default { render };
