// Step detail (traces of level `token`): which cells of a block each step fixed, to what text, how confidently.
// It may cover a window of cycles only (detail.py says which columns there are).

import { activeCycles, blockAt, decodeColumns, starts } from "./trace.js";

const key = (request, cycle) => request * 67108864 + cycle; // two integers in one exact double

/**
 * @typedef {{cells: number[], confidence: number[], texts: string[]}} Step  confidence in [0, 1]
 * @typedef {{from: number, to: number, whole: boolean, rows: Map<number, any>, prompts: Map<number, string>}} Detail
 * @returns {Detail | null} null for a trace without step detail
 */
export function openDetail(spec, data, meta) {
  if (!spec.length) return null;
  const c = decodeColumns(spec, data);
  const stepFirst = starts(c.row_steps), cellFirst = starts(c.step_cells);
  const texts = strings(c.text_length, c.text_bytes), prompts = strings(c.prompt_length, c.prompt_bytes);
  const rows = new Map();
  for (let row = 0; row < c.row_request.length; row++) {
    rows.set(key(c.row_request[row], c.row_cycle[row]), () => {
      const steps = [];
      for (let step = stepFirst[row]; step < stepFirst[row + 1]; step++) {
        const [from, to] = [cellFirst[step], cellFirst[step + 1]];
        const confidence = Array.from(c.confidence.subarray(from, to), (share) => share / 255);
        steps.push({ cells: Array.from(c.cell.subarray(from, to)), confidence, texts: Array.from(c.text.subarray(from, to), (t) => texts[t]) });
      }
      return steps;
    });
  }
  return { ...meta, rows, prompts: new Map(Array.from(c.prompt_request, (request, i) => [request, prompts[i]])) };
}

function strings(lengths, bytes) {
  const ends = starts(lengths), decoder = new TextDecoder();
  return Array.from(lengths, (_, i) => decoder.decode(bytes.subarray(ends[i], ends[i + 1])));
}

/** Add the steps of a cycle that has just been run. @returns {Detail} */
export function appendDetail(detail, cycle, rows) {
  detail ??= { from: cycle, to: cycle, whole: true, rows: new Map(), prompts: new Map() };
  for (const [request, steps, prompt] of rows) {
    if (prompt) detail.prompts.set(request, prompt);
    const told = steps.map(([cells, shares, texts]) => ({ cells, confidence: shares.map((s) => s / 255), texts }));
    detail.rows.set(key(request, cycle), () => told);
  }
  detail.to = cycle;
  return detail;
}

/** Steps of a request's block in a cycle; null where they are not here. @returns {Step[] | null} */
export const detailSteps = (detail, request, cycle) => detail?.rows.get(key(request, cycle))?.() ?? null;

/**
 * A block cell by cell: the step that fixed it (Infinity: none), to what, how confidently.
 * @returns {{step: number, text: string, confidence: number}[]}
 */
export function blockCells(steps, length) {
  const cells = Array.from({ length }, () => ({ step: Infinity, text: "", confidence: 0 }));
  steps.forEach(({ cells: places, texts, confidence }, step) => places.forEach((place, i) => {
    if (place >= 0 && place < length) cells[place] = { step, text: texts[i], confidence: confidence[i] };
  }));
  return cells;
}

/** The cycle in which a request worked on each of its blocks, up to a cycle. @returns {number[]} by block index */
export function cyclesOfBlocks(trace, request, cycle) {
  const cycles = [];
  for (let stay = 0; stay < trace.join.length && trace.join[stay] <= cycle; stay++) {
    if (trace.c.stay_request[stay] !== request) continue;
    const end = Math.min(cycle + 1, trace.join[stay] + activeCycles(trace, stay));
    for (let at = trace.join[stay]; at < end; at++) cycles[blockAt(trace, stay, at)] = at;
  }
  return cycles;
}
