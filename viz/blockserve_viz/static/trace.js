// Columns → Trace. The typed columns of frames.py, the indexes that find any cycle by binary search, and the cycles
// of a run in progress, which are appended. Everything here is pure: no page.

const ARRAYS = { u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array, f4: Float32Array, f8: Float64Array };
export const REASONS = ["", "eos", "stop", "length", "cancelled", "error", "rejected"];
export const WHYS = ["", "head", "fits", "grow", "held", "readmitted"];
export const LEFT = ["", "preempted", ...REASONS.slice(1)];
export const REFUSALS = ["budget", "box", "slots", "group", "held"];
export const PREEMPTED = 1;
const NEVER = 0xffffffff;

/** The columns' bytes as an ArrayBuffer view; undoes the deflation of large payloads, hence async. */
export async function inflate(data, meta) {
  if (!meta.packed) return data;
  const stream = new Blob([data]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}

/**
 * Typed-array views of the columns; a constant column is filled in, one stored as steps is summed up.
 * @param {{name: string, dtype: string, offset: number, length: number, constant?: number, first?: number}[]} spec
 * @param {DataView | ArrayBuffer | Uint8Array} data
 * @returns {Record<string, any>}
 */
export function decodeColumns(spec, data) {
  let { buffer, byteOffset, byteLength } = ArrayBuffer.isView(data) ? data : new DataView(data);
  if (byteOffset % 8) [buffer, byteOffset] = [buffer.slice(byteOffset, byteOffset + byteLength), 0];
  const columns = {};
  for (const { name, dtype, offset, length, constant, first } of spec) {
    const Column = ARRAYS[dtype];
    const stored = constant === undefined ? new Column(buffer, byteOffset + offset, length) : new Column(length).fill(constant);
    columns[name] = first === undefined ? stored : starts(stored, first);
  }
  return columns;
}

/** Running totals: out[i] = first + values[0] + … + values[i − 1]; one longer than values. */
export function starts(values, first = 0) {
  const out = new Uint32Array(values.length + 1);
  out[0] = first;
  for (let i = 0; i < values.length; i++) out[i + 1] = out[i] + values[i];
  return out;
}

/**
 * @typedef {object} Trace
 * @property {Record<string, any>} c  columns
 * @property {{cycles: number, block_length: number, suffix: number, order: string, [k: string]: any}} meta
 * @property {any} join, leave  of each stay: first cycle in the batch, first cycle no more in it
 * @property {any[]} bySlot  stays of each slot in order of joining
 */

/** @returns {Trace} */
export function openTrace(spec, data, meta) {
  const c = decodeColumns(spec, data);
  const stays = c.stay_request.length;
  const join = new Uint32Array(stays), leave = new Uint32Array(stays);
  for (let cycle = 0, s = 0; cycle < meta.cycles; cycle++) for (let n = c.cycle_joins[cycle]; n > 0; n--) join[s++] = cycle;
  for (let s = 0; s < stays; s++) leave[s] = join[s] + c.stay_length[s];
  const trace = { c, meta, join, leave, bySlot: staysBySlot(c.stay_slot), live: null, ids: null };
  if (c.id_text) trace.idEnds = starts(c.id_length);
  trace.maxRows = largest(c.cycle_batch);
  trace.maxWidth = largest(c.cycle_width);
  trace.maxQueued = largest(c.request_prompt);
  if (c.step_count) trace.rowFirst = starts(c.stay_length);
  if (c.commit_count) trace.stepFirst = starts(c.step_count);
  trace.prefix = sharedPrefix(trace);
  return trace;
}

function largest(values) {
  let most = 0;
  for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i];
  return most;
}

/** Stays of each slot in order of joining: no two of them overlap, so a binary search finds the one at a cycle. */
function staysBySlot(slots) {
  const counts = [];
  for (let s = 0; s < slots.length; s++) counts[slots[s]] = (counts[slots[s]] ?? 0) + 1;
  const lists = Array.from(counts, (count) => new Uint32Array(count ?? 0));
  const at = new Uint32Array(lists.length);
  for (let s = 0; s < slots.length; s++) lists[slots[s]][at[slots[s]]++] = s;
  return lists;
}

/** @returns {string} the id of a request by index */
export function requestId(trace, request) {
  if (trace.ids) return trace.ids[request];
  if (trace.c.id_number) return trace.meta.id_prefix + trace.c.id_number[request];
  return new TextDecoder().decode(trace.c.id_text.subarray(trace.idEnds[request], trace.idEnds[request + 1]));
}

/** @returns {number} the index of a request by id, −1 if there is none */
export function requestIndex(trace, id) {
  if (trace.ids) return trace.ids.indexOf(id);
  if (trace.c.id_number) {
    const { id_prefix: prefix } = trace.meta;
    return id.startsWith(prefix) && /^\d+$/.test(id.slice(prefix.length)) ? trace.c.id_number.indexOf(Number(id.slice(prefix.length))) : -1;
  }
  for (let i = 0; i + 1 < trace.idEnds.length; i++) if (requestId(trace, i) === id) return i;
  return -1;
}

/** What all ids begin with, up to a mark such as "-": labels leave it out. */
function sharedPrefix(trace) {
  const count = trace.c.request_prompt.length;
  if (count < 2) return "";
  if (trace.c.id_number) return /^.*[-_:/. ]/s.exec(trace.meta.id_prefix)?.[0] ?? "";
  const { idEnds, c } = trace, text = c.id_text;
  let shared = idEnds[1];
  for (let i = 1; i < count && shared > 0; i++) {
    shared = Math.min(shared, idEnds[i + 1] - idEnds[i]);
    for (let k = 0; k < shared; k++) if (text[idEnds[i] + k] !== text[k]) shared = k;
  }
  return /^.*[-_:/. ]/.exec(new TextDecoder().decode(text.subarray(0, shared)))?.[0] ?? "";
}

// ---- the queue

/**
 * Every wait in the queue: `request`, `from` (cycle), `to`, `block`, sorted as the scheduler sorts; indexes break ties
 * as it does. `first` and `last` sum up groups of 256, so that a listing skips those that are over or yet to come.
 */
export function queueWaits(trace) {
  if (trace.waits) return trace.waits;
  const { c, meta, join, leave } = trace;
  const count = c.request_prompt.length, stays = join.length;
  const since = Uint32Array.from(c.request_arrival), block = new Uint32Array(count);
  const waits = Array.from({ length: 4 }, () => new Uint32Array(stays + count));
  const [request, from, to, reached] = waits;
  let n = 0;
  const add = (r, start, end) => {
    if (start >= end) return;
    request[n] = r;
    from[n] = start;
    to[n] = end;
    reached[n++] = block[r];
  };
  for (let s = 0; s < stays; s++) {
    const r = c.stay_request[s];
    add(r, since[r], join[s]);
    since[r] = c.stay_left[s] === PREEMPTED ? leave[s] : NEVER;
    block[r] = c.stay_block[s] + c.stay_length[s];
  }
  for (let r = 0; r < count; r++) add(r, since[r], Math.min(meta.cycles, c.request_gone[r]));
  const order = queueOrder(trace, request, reached, n);
  const sorted = Object.fromEntries(["request", "from", "to", "block"].map((name, i) => [name, picked(waits[i], order)]));
  trace.waits = { ...sorted, ...summed(sorted.from, sorted.to) };
  return trace.waits;
}

/** The order of `n` waits by the queue's key, then request: two stable counting sorts, which two million take lightly. */
function queueOrder({ c, meta }, request, block, n) {
  const sign = { longest_first: -1, shortest_first: 1 }[meta.order] ?? 0;
  let order = new Uint32Array(n);
  for (let i = 0; i < n; i++) order[i] = i;
  order = countingSort(order, request, c.request_prompt.length);
  if (sign === 0) return order;
  const keys = new Uint32Array(n);
  for (let w = 0; w < n; w++) keys[w] = c.request_prompt[request[w]] + block[w] * meta.block_length;
  const most = largest(keys);
  if (sign < 0) for (let w = 0; w < n; w++) keys[w] = most - keys[w];
  return countingSort(order, keys, most + 1);
}

/** `order` by `keys` below `count`, stable. */
function countingSort(order, keys, count) {
  const n = order.length, at = new Uint32Array(count + 1), out = new Uint32Array(n);
  let sorted = true;
  for (let i = 0; i < n; i++) {
    at[keys[order[i]] + 1]++;
    if (i && keys[order[i]] < keys[order[i - 1]]) sorted = false;
  }
  if (sorted) return order;
  for (let k = 0; k < count; k++) at[k + 1] += at[k];
  for (let i = 0; i < n; i++) out[at[keys[order[i]]]++] = order[i];
  return out;
}

function picked(values, order) {
  const out = new Uint32Array(order.length);
  for (let i = 0; i < out.length; i++) out[i] = values[order[i]];
  return out;
}

const GROUP = 256;

function summed(from, to) {
  const groups = Math.ceil(from.length / GROUP);
  const first = new Uint32Array(groups).fill(NEVER), last = new Uint32Array(groups);
  for (let i = 0; i < from.length; i++) {
    const g = (i / GROUP) | 0;
    if (from[i] < first[g]) first[g] = from[i];
    if (to[i] > last[g]) last[g] = to[i];
  }
  return { first, last };
}

/** Places in `queueWaits` of those who wait during a cycle, at most `limit`, in the queue's order. */
export function waitingAt(trace, cycle, limit = Infinity) {
  const { from, to, first, last } = queueWaits(trace);
  const found = [];
  for (let g = 0; g < first.length && found.length < limit; g++) {
    if (first[g] > cycle || last[g] <= cycle) continue;
    const end = Math.min(from.length, (g + 1) * GROUP);
    for (let w = g * GROUP; w < end && found.length < limit; w++) if (from[w] <= cycle && cycle < to[w]) found.push(w);
  }
  return found;
}

/** Stays that were evicted, in order of leaving, and how many of them had left when each cycle began. */
export function departures(trace) {
  if (trace.departures) return trace.departures;
  const { c, meta, leave } = trace;
  const gone = new Uint32Array(leave.length), perCycle = new Uint32Array(meta.cycles + 1);
  let count = 0;
  for (let s = 0; s < leave.length; s++) {
    if (c.stay_left[s] <= PREEMPTED) continue;
    gone[count++] = s;
    perCycle[leave[s]]++;
  }
  const order = countingSort(gone.subarray(0, count), leave, meta.cycles + 1);
  const sums = starts(perCycle);
  trace.departures = { order, before: (cycle) => sums[cycle + 1] };
  return trace.departures;
}

// ---- one row in one cycle

/** Stays in the batch at a cycle, by slot. */
export function presentStays(trace, cycle) {
  const present = [];
  for (const list of trace.bySlot) {
    let low = 0, high = list?.length ?? 0;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (trace.join[list[middle]] <= cycle) low = middle + 1;
      else high = middle;
    }
    if (low > 0 && trace.leave[list[low - 1]] > cycle) present.push(list[low - 1]);
  }
  return present;
}

/** Cycles in which a stay advanced, before it was frozen. */
export const activeCycles = ({ c }, stay) => c.stay_length[stay] - c.stay_frozen[stay];

/** Block index: one more each cycle, the same while the row is frozen. */
export const blockAt = (trace, stay, cycle) =>
  trace.c.stay_block[stay] + Math.min(cycle - trace.join[stay], activeCycles(trace, stay) - 1);

/** Kept suffix blocks of a request at a block. */
export function suffixAt(trace, request, block) {
  const rest = trace.c.request_blocks[request] - 1 - block;
  return trace.meta.suffix < 0 ? rest : Math.min(trace.meta.suffix, rest);
}

/** Row width of a request at a block (Eq. 1). */
export const rowWidth = (trace, request, block) =>
  trace.c.request_prompt[request] + (block + 1 + suffixAt(trace, request, block)) * trace.meta.block_length;

export const widthAt = (trace, stay, cycle) => rowWidth(trace, trace.c.stay_request[stay], blockAt(trace, stay, cycle));

/** Steps of a row's block; null where the trace was too long to say. */
export function stepsAt(trace, stay, cycle) {
  if (trace.live) return trace.live.commits[stay][cycle - trace.join[stay]]?.length ?? null;
  return trace.c.step_count ? trace.c.step_count[trace.rowFirst[stay] + cycle - trace.join[stay]] : null;
}

/** Positions committed in each step of a row's block; null where the trace was too long to say. */
export function commitsAt(trace, stay, cycle) {
  if (trace.live) return trace.live.commits[stay][cycle - trace.join[stay]] ?? null;
  if (!trace.stepFirst) return null;
  const at = trace.rowFirst[stay] + cycle - trace.join[stay];
  return Array.from(trace.c.commit_count.subarray(trace.stepFirst[at], trace.stepFirst[at + 1]));
}

/** Per cycle, the rows whose output was not complete when it began: the numerator of R (Eq. 2). */
export function unendedRows(trace) {
  const { c, meta, join } = trace;
  const change = new Int32Array(meta.cycles + 1);
  for (let s = 0; s < join.length; s++) {
    const cycles = Math.min(activeCycles(trace, s), c.request_end[c.stay_request[s]] - c.stay_block[s] + 1);
    change[join[s]]++;
    change[join[s] + Math.max(0, cycles)]--;
  }
  for (let i = 1; i < change.length; i++) change[i] += change[i - 1];
  return change.subarray(0, meta.cycles);
}

// ---- a run in progress

const CYCLE_VALUES = ["start", "duration", "batch", "width", "budget", "queue", "steps", "padding", "tokens", "valid", "refused"];

/**
 * Append what happened since (feed.py says what a delta holds). The first time columns become plain arrays, which grow.
 * @param {Trace} trace
 */
export function appendDelta(trace, delta) {
  if (!trace.live) thaw(trace);
  const { c, meta } = trace;
  for (const [id, prompt, blocks, end, arrives] of delta.requests) {
    trace.ids.push(id);
    const values = { prompt, blocks, end, reason: 0, arrives, arrival: meta.cycles, gone: NEVER, done: 0, last: 0 };
    for (const [name, value] of Object.entries(values)) c[`request_${name}`].push(value);
    trace.maxQueued = Math.max(trace.maxQueued, prompt);
  }
  for (const cycle of delta.cycles) appendCycle(trace, cycle);
  for (const [request, reason, last, gone] of delta.done) {
    [c.request_done[request], c.request_last[request], c.request_gone[request]] = [reason, last, gone];
  }
  trace.waits = trace.departures = null;
}

function appendCycle(trace, { values, joins, rows, over, ends }) {
  const { c, meta, join, leave, bySlot, live } = trace;
  const cycle = meta.cycles++;
  CYCLE_VALUES.forEach((name, i) => c[`cycle_${name}`].push(values[i]));
  c.cycle_joins.push(joins.length);
  for (const [request, slot, block, why] of joins) {
    const stay = { request, slot, block, why, length: 0, frozen: 0, left: 0 };
    for (const [name, value] of Object.entries(stay)) c[`stay_${name}`].push(value);
    c.request_arrival[request] = Math.min(c.request_arrival[request], cycle);
    (bySlot[slot] ??= []).push(join.length);
    join.push(cycle);
    leave.push(cycle);
    live.commits.push([]);
  }
  for (const [stay, frozen, ...commits] of rows) {
    c.stay_length[stay]++;
    c.stay_frozen[stay] += frozen;
    leave[stay] = cycle + 1;
    live.commits[stay].push(commits);
  }
  for (const [stay, how] of over) c.stay_left[stay] = how;
  for (const [request, block, reason] of ends) [c.request_end[request], c.request_reason[request]] = [block, reason];
  for (let r = 0; r < c.request_arrival.length; r++)
    if (c.request_arrival[r] >= cycle && c.request_arrives[r] > values[0]) c.request_arrival[r] = cycle + 1;
  trace.maxRows = Math.max(trace.maxRows, values[2]);
  trace.maxWidth = Math.max(trace.maxWidth, values[3]);
}

function thaw(trace) {
  const { c, meta, join } = trace;
  trace.ids = Array.from(c.request_prompt, (_, request) => requestId(trace, request));
  const commits = Array.from(join, (from, stay) =>
    Array.from({ length: c.stay_length[stay] }, (_, i) => commitsAt(trace, stay, from + i) ?? []));
  for (const name of Object.keys(c)) c[name] = Array.from(c[name]);
  c.request_gone = c.request_gone.map((gone) => (gone >= meta.cycles ? NEVER : gone));
  for (const name of ["join", "leave"]) trace[name] = Array.from(trace[name]);
  trace.bySlot = trace.bySlot.map((list) => Array.from(list));
  trace.meta = { ...meta };
  trace.live = { commits };
}
