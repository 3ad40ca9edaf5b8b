// Trace + cycle → Frame: the batch in one cycle, with what happens at the boundary after it; and why (explain.py).

import { LEFT, PREEMPTED, REASONS, REFUSALS, WHYS, activeCycles, blockAt, commitsAt, departures, presentStays, queueWaits, requestId, requestIndex, rowWidth, stepsAt, suffixAt, waitingAt, widthAt } from "./trace.js";

/** Tokens by which the row is wider in the next cycle; 0 when it is not in it. */
const growthAt = (trace, stay, cycle) =>
  trace.leave[stay] > cycle + 1 ? widthAt(trace, stay, cycle + 1) - widthAt(trace, stay, cycle) : 0;

/**
 * The batch in one cycle, with what happens at the boundary after it. Lengths in tokens; `edge` is where the box's
 * left edge lies after the boundary, measured from this cycle's right edge; `reclaimed`: padding a row then has less.
 * @param {import("./trace.js").Trace} trace @param {number} cycle
 * @param {number} queueLimit how many queued requests to list
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
    gone: goneBefore(trace, cycle),
  };
}

function rowState(trace, stay, cycle, { width, slotsBefore }) {
  const { c, join, leave } = trace;
  const request = c.stay_request[stay];
  const block = blockAt(trace, stay, cycle);
  const end = c.request_end[request];
  const own = widthAt(trace, stay, cycle);
  const frozen = cycle >= join[stay] + activeCycles(trace, stay);
  const padding = width - own;
  const staysOn = leave[stay] > cycle + 1;
  const paddingNext = staysOn ? c.cycle_width[cycle + 1] - widthAt(trace, stay, cycle + 1) : padding;
  return {
    stay, slot: c.stay_slot[stay],
    id: requestId(trace, request),
    block, prompt: c.request_prompt[request], suffix: suffixAt(trace, request, block), width: own, padding,
    frozen,
    past: frozen ? 0 : Math.max(0, block - end), // blocks worked on after its output was complete
    steps: stepsAt(trace, stay, cycle),
    commits: commitsAt(trace, stay, cycle),
    entered: join[stay] !== cycle ? null : slotsBefore.has(c.stay_slot[stay]) ? "refill" : "expand",
    why: WHYS[c.stay_why[stay]],
    ended: block === end && !frozen ? REASONS[c.request_reason[request]] : null,
    leaves: staysOn || !c.stay_left[stay] ? null : LEFT[c.stay_left[stay]],
    grows: growthAt(trace, stay, cycle) > 0,
    reclaimed: Math.max(0, padding - paddingNext),
  };
}

/** Indexes of the requests that are admitted at the boundary after a cycle. */
function enteringAfter(trace, cycle) {
  if (cycle + 1 >= trace.meta.cycles) return new Set();
  const fresh = presentStays(trace, cycle + 1).filter((s) => trace.join[s] === cycle + 1);
  return new Set(fresh.map((s) => trace.c.stay_request[s]));
}

/** The first `limit` queued requests in the queue's order; `enters`: admitted at the boundary after this cycle. */
function queueAt(trace, cycle, limit) {
  const entering = enteringAfter(trace, cycle);
  const { request, block } = queueWaits(trace);
  return waitingAt(trace, cycle, limit).map((w) => ({
    id: requestId(trace, request[w]), prompt: trace.c.request_prompt[request[w]], block: block[w], enters: entering.has(request[w]),
  }));
}

/** How many requests had left when a cycle began, and the last of them, newest first. */
function goneBefore(trace, cycle) {
  const { order, before } = departures(trace);
  const count = before(cycle);
  const last = Array.from(order.slice(Math.max(0, count - RECENT), count)).reverse();
  return { count, last: last.map((s) => ({ id: requestId(trace, trace.c.stay_request[s]), reason: LEFT[trace.c.stay_left[s]] })) };
}

const RECENT = 16;

/** Positions of the row's block committed after `done` whole steps; even steps where the trace has no commits. */
export function committed(row, done, blockLength, steps) {
  if (row.commits) return row.commits.slice(0, done).reduce((a, b) => a + b, 0);
  const own = row.steps ?? steps;
  return own ? Math.round((blockLength * Math.min(done, own)) / own) : blockLength;
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

// ---- why

// The words of blockserve/tracing/explain.py; a test compares every sentence.
export const ADMITTED = {
  head: "the batch was empty, so the head of the queue enters",
  fits: "its row fits the present box and the bound holds",
  grow: "nothing more fitted the box, and the head of the queue may widen it within the bound",
  held: "it had waited the longest allowed, so all others were held back for it",
  readmitted: "it had been preempted and goes on with the block it had reached",
};

const boxText = (rows, width) => `${rows} × ${width} = ${rows * width}`;

/** One sentence on what a request did at a cycle, and why: as `trace.explain(cycle, id)` says it. */
export function explain(trace, cycle, id) {
  const request = requestIndex(trace, id);
  if (request < 0 || cycle < 0 || cycle >= trace.meta.cycles) return "";
  const stay = presentStays(trace, cycle).find((s) => trace.c.stay_request[s] === request);
  return stay === undefined ? outside(trace, cycle, request, id) : inBatch(trace, cycle, stay, id);
}

function inBatch(trace, cycle, stay, id) {
  const { c, join } = trace;
  const row = rowState(trace, stay, cycle, { width: c.cycle_width[cycle], slotsBefore: new Set() });
  const box = boxText(c.cycle_batch[cycle], c.cycle_width[cycle]);
  const parts = [`${id} is in slot ${row.slot} at block ${row.block}, row width ${row.width} in the box ${box}`];
  if (join[stay] === cycle && row.why) parts.push(`admitted (${row.why}): ${ADMITTED[row.why]}`);
  if (row.frozen) parts.push("its output is complete; it waits for its group");
  else if (row.steps !== null) parts.push(`its block took ${row.steps} step${row.steps === 1 ? "" : "s"}`);
  const evicted = row.leaves && c.stay_left[stay] !== PREEMPTED && !cancelledBetween(trace, stay);
  if (evicted) parts.push(`evicted at the end of the cycle (${row.leaves})`);
  else if (row.ended) parts.push(`its output is complete (${row.ended}) but it has not left`);
  return `${parts.join("; ")}.`;
}

/** Whether a row was cancelled after its last cycle, not by it: then that cycle evicted nobody. */
const cancelledBetween = ({ c }, stay) => LEFT[c.stay_left[stay]] === "cancelled";

function outside(trace, cycle, request, id) {
  const { c, meta, join, leave } = trace;
  const done = REASONS[c.request_done[request]], last = c.request_last[request];
  if (done && (last === 0 || last <= cycle)) {
    const message = meta.messages?.[id];
    return `${id} had left${last ? ` after cycle ${last - 1}` : ""} (${done}${message ? `: ${message}` : ""}).`;
  }
  if (c.request_arrives[request] > c.cycle_start[cycle])
    return `${id} arrives at ${c.request_arrives[request].toFixed(3)} s; this cycle started at ${c.cycle_start[cycle].toFixed(3)} s.`;
  let block = 0, preempted = false;
  for (let s = 0; s < join.length; s++) {
    if (c.stay_request[s] !== request || join[s] >= cycle) continue;
    block += leave[s] - join[s];
    preempted ||= leave[s] === cycle && c.stay_left[s] === PREEMPTED;
  }
  return `${id} ${preempted ? "was preempted at this boundary and " : ""}waits; refused: ${refusal(trace, cycle, request, block)}.`;
}

/** The reason in numbers, from the policy, the box and the block the request has reached. */
function refusal(trace, cycle, request, block) {
  const { c, meta } = trace;
  const refused = (reason) => Boolean(c.cycle_refused[cycle] & (1 << REFUSALS.indexOf(reason)));
  const budget = c.cycle_budget[cycle], rows = c.cycle_batch[cycle], box = c.cycle_width[cycle];
  if (meta.quantum === "request" && c.cycle_joins[cycle] === 0)
    return "group (the running group must leave before the next one enters)";
  const width = rowWidth(trace, request, block);
  const wider = Math.max(box, width), cost = (rows + 1) * wider;
  if (budget < 0 && meta.slots !== null && rows + 1 > meta.slots) return `slots (${rows} of ${meta.slots} are taken)`;
  if (budget >= 0 && cost > budget) return `budget (${boxText(rows + 1, wider)} > ${budget})`;
  if (width > box && refused("box"))
    return `box (its row of ${width} is wider than the box of ${box}, which this fill does not widen)`;
  if (meta.reserve && refused("budget")) return `budget (${boxText(rows + 1, wider)} fits now, but not at every later block)`;
  return "held (another request must enter first)";
}
