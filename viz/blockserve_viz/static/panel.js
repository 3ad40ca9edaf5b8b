// What the player says about one request: a line at the pointer, and below the batch its story and its text.

import { blockCells, cyclesOfBlocks, detailSteps } from "./detail.js";
import { explain } from "./frame.js";
import { presentStays, requestIndex, rowWidth, stepsAt, blockAt } from "./trace.js";

/** Facts on a request in a cycle, as [name, value]. */
export function facts(trace, cycle, id) {
  const request = requestIndex(trace, id);
  if (request < 0) return [];
  const stay = presentStays(trace, cycle).find((s) => trace.c.stay_request[s] === request);
  const prompt = ["prompt", `${trace.c.request_prompt[request]} tokens`];
  if (stay === undefined) return [prompt, ["canvas", `${trace.c.request_blocks[request]} blocks`]];
  const block = blockAt(trace, stay, cycle), steps = stepsAt(trace, stay, cycle);
  return [
    ["block", `B${block} of ${trace.c.request_blocks[request]}`],
    ...(steps === null ? [] : [["steps", steps]]),
    ["width", `${rowWidth(trace, request, block)} tokens`],
    prompt,
  ];
}

export const element = (tag, className = "", text = "") => Object.assign(document.createElement(tag), { className, textContent: text });

/** The box at the pointer. `x`, `y` from the upper left corner of its parent. */
export class Tooltip {
  constructor(parent) {
    this.box = parent.appendChild(element("div", "bs-tip"));
    this.box.hidden = true;
    this.box.dataset.testid = "tip";
    this.box.setAttribute("role", "tooltip");
  }

  show(lines, x, y) {
    this.box.replaceChildren(...lines.map((line, i) => element("div", i ? "" : "bs-tip-head", line)));
    this.box.hidden = false;
    const { offsetWidth: wide, offsetHeight: high, offsetParent: around } = this.box;
    const left = Math.max(4, Math.min(x + 14, (around?.clientWidth ?? 600) - wide - 4));
    const top = y + 18 + high < (around?.clientHeight ?? 600) ? y + 18 : Math.max(4, y - high - 10);
    Object.assign(this.box.style, { left: `${left}px`, top: `${top}px` });
  }

  hide() {
    this.box.hidden = true;
  }
}

/** Lines for the pointer over a request. */
export function tipLines(trace, cycle, id) {
  const short = facts(trace, cycle, id).map(([name, value]) => `${name} ${value}`).join(" · ");
  return [id, short, explain(trace, cycle, id)];
}

/** The selected request: facts, why, and at trace level `token` its text, masks filling in step by step. */
export class Panel {
  constructor(root, close) {
    this.root = root;
    this.root.dataset.testid = "info";
    const head = element("div", "bs-info-head");
    this.name = element("strong");
    this.facts = element("span", "bs-muted");
    const button = element("button", "bs-close", "×");
    Object.assign(button, { type: "button", title: "Clear the selection (Esc)" });
    button.setAttribute("aria-label", "Clear the selection");
    button.dataset.testid = "clear";
    button.addEventListener("click", close);
    head.append(this.name, this.facts, button);
    this.why = element("p", "bs-why");
    this.why.dataset.testid = "why";
    this.why.setAttribute("aria-live", "polite");
    this.text = element("div", "bs-text");
    this.text.dataset.testid = "text";
    Object.assign(this.text, { tabIndex: 0 });
    this.text.setAttribute("role", "group");
    this.text.setAttribute("aria-label", "Text of the request");
    this.scale = element("div", "bs-scale");
    this.scale.append("confidence ", ...CLASSES.map((low, i) => element("span", `bs-conf${i}`, low ? `≥ ${low}` : "below")));
    root.append(head, this.why, this.text, this.scale);
    root.hidden = true;
  }

  /** @param {{trace: any, detail: any, cycle: number, step: number, id: string}} at  `step`: whole steps done */
  show({ trace, detail, cycle, step, id }) {
    this.root.hidden = !id || requestIndex(trace, id) < 0;
    if (this.root.hidden) return;
    const key = `${id}/${cycle}/${trace.meta.cycles}/${detail?.from}/${detail?.to}`;
    if (this.shown !== key) {
      this.shown = key;
      this.name.textContent = id;
      this.facts.textContent = facts(trace, cycle, id).map(([name, value]) => `${name} ${value}`).join(" · ");
      this.why.textContent = explain(trace, cycle, id);
      this.write(trace, detail, cycle, id);
    }
    this.fill(step);
  }

  /** Lay out prompt and blocks; the cells of the block in work are kept, to be filled in. */
  write(trace, detail, cycle, id) {
    const request = requestIndex(trace, id);
    this.cells = [];
    this.text.hidden = this.scale.hidden = !detail;
    if (!detail) return;
    const cycles = cyclesOfBlocks(trace, request, cycle);
    const prompt = element("span", "bs-prompt-text", detail.prompts.get(request) ?? `(prompt of ${trace.c.request_prompt[request]} tokens)`);
    this.text.replaceChildren(prompt);
    cycles.forEach((at, block) => {
      const steps = detailSteps(detail, request, at);
      const part = element("span", "bs-block");
      part.append(element("span", "bs-block-name", `B${block}`));
      if (steps) part.append(...this.tokens(blockCells(steps, trace.meta.block_length), at === cycle));
      else part.append(element("span", "bs-muted", ` steps of cycle ${at} are not in this page `));
      this.text.append(part);
    });
    this.text.scrollTop = this.text.scrollHeight;
  }

  tokens(cells, inWork) {
    return cells.map(({ step, text, confidence }) => {
      const span = element("span", "bs-token");
      const shown = text === "" ? "∎" : text.replaceAll("\n", "⏎\n");
      const level = CLASSES.findLastIndex((low) => confidence >= low);
      const token = { span, step, shown, level, confidence };
      if (step === Infinity) Object.assign(token, { shown: "", level: -1 });
      if (inWork) this.cells.push(token);
      else reveal(token, true);
      return span;
    });
  }

  fill(step) {
    for (const token of this.cells) reveal(token, token.step < step);
  }
}

const CLASSES = [0, 0.5, 0.7, 0.9, 0.99];

function reveal(token, fixed) {
  if (token.fixed === fixed) return;
  token.fixed = fixed;
  const { span, shown, level, step, confidence } = token;
  const known = fixed && level >= 0;
  span.className = `bs-token ${known ? `bs-conf${level}` : "bs-mask"}`;
  span.textContent = known ? shown : "░░";
  span.title = known ? `step ${step}, confidence ${confidence.toFixed(2)}` : "masked";
}
