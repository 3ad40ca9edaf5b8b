// Quiz: at a boundary, who leaves, who enters, what becomes of the box? Asked of the trace, checked against it.

import { explain, frameState } from "./frame.js";
import { element } from "./panel.js";

const LISTED = 8; // queued requests to choose from, besides those that do enter

/**
 * The question at the boundary after a cycle, with its answers.
 * @returns {{cycle: number, rows: string[], queue: string[], leaves: string[], enters: string[], box: string}}
 */
export function question(trace, cycle) {
  const frame = frameState(trace, cycle);
  const enters = frame.queue.filter((q) => q.enters).map((q) => q.id);
  const listed = frame.queue.filter((q, i) => q.enters || i < LISTED).map((q) => q.id);
  const [now, next] = [trace.c.cycle_width[cycle], trace.c.cycle_width[cycle + 1]];
  return {
    cycle,
    rows: frame.rows.map((row) => row.id),
    queue: listed,
    leaves: frame.rows.filter((row) => row.leaves).map((row) => row.id),
    enters,
    box: next < now ? "narrower" : next > now ? "wider" : "as wide",
  };
}

/** The next cycle, from `from` on, at whose boundary something happens; −1 if there is none. */
export function nextQuestion(trace, from) {
  for (let cycle = Math.max(0, from); cycle + 1 < trace.meta.cycles; cycle++) {
    const frame = frameState(trace, cycle, 0);
    if (frame.rows.some((row) => row.leaves) || trace.c.cycle_joins[cycle + 1]) return cycle;
  }
  return -1;
}

const same = (a, b) => a.length === b.length && [...a].sort().every((id, i) => id === [...b].sort()[i]);

/** Which parts of an answer are right. @param {{leaves: string[], enters: string[], box: string}} answer */
export const grade = (asked, answer) => ({
  leaves: same(asked.leaves, answer.leaves), enters: same(asked.enters, answer.enters), box: asked.box === answer.box,
});

/** The right answers with their reasons. */
export function solution(trace, asked) {
  const { cycle } = asked;
  const names = (ids) => (ids.length ? ids.map((id) => id.slice(trace.prefix.length) || id).join(", ") : "nobody");
  const left = asked.leaves.map((id) => leaving(trace, cycle, id));
  const stay = asked.leaves.length ? [] : ["No row's output became complete, so every row goes on."];
  const entered = asked.enters.map((id) => explain(trace, cycle + 1, id));
  const outside = asked.queue.find((id) => !asked.enters.includes(id));
  const waits = outside === undefined ? [] : [explain(trace, cycle + 1, outside)];
  return {
    leaves: { answer: names(asked.leaves), why: [...left, ...stay] },
    enters: { answer: names(asked.enters), why: [...entered, ...waits] },
    box: { answer: asked.box, why: [boxReason(trace, asked)] },
  };
}

function leaving(trace, cycle, id) {
  const row = frameState(trace, cycle, 0).rows.find((r) => r.id === id);
  if (row.leaves === "preempted") return `${id} goes back to the queue: with its next block the batch would no longer keep the bound.`;
  return `${id} left (${row.leaves}).`;
}

function boxReason(trace, { cycle, box }) {
  const widest = (at) => frameState(trace, at, 0).rows.reduce((a, b) => (b.width > a.width ? b : a));
  const [now, next] = [trace.c.cycle_width[cycle], trace.c.cycle_width[cycle + 1]];
  const before = widest(cycle), after = widest(cycle + 1);
  const size = `${trace.c.cycle_batch[cycle]} × ${now} → ${trace.c.cycle_batch[cycle + 1]} × ${next}`;
  if (before.leaves) return `${size}: the widest row, ${before.id}, left; now ${after.id} sets the width.`;
  if (box === "as wide") return `${size}: ${after.id} sets the width, as before.`;
  return `${size}: ${after.id === before.id ? `the widest row, ${after.id}, goes on with its next block` : `${after.id} is now the widest row`}.`;
}

// ---- the form

/** The form below the batch. `host`: trace(), ask(cycle), reveal(), count(right). */
export class Quiz {
  constructor(root, host) {
    [this.root, this.host] = [root, host];
    root.dataset.testid = "quiz";
    root.hidden = true;
  }

  open(cycle) {
    const trace = this.host.trace();
    let at = nextQuestion(trace, cycle);
    if (at < 0) at = nextQuestion(trace, 0); // past the last one: again from the start
    this.root.hidden = false;
    if (at < 0) return this.root.replaceChildren(element("p", "", "Nothing enters or leaves in this trace: there is nothing to ask."));
    this.asked = question(trace, at);
    this.host.ask(at);
    this.write();
  }

  close() {
    this.root.hidden = true;
    this.asked = null;
  }

  write() {
    const { rows, queue, cycle } = this.asked;
    const form = element("form", "bs-quiz-form");
    const short = (id) => id.slice(this.host.trace().prefix.length) || id;
    const boxes = ["narrower", "as wide", "wider"].map((word) => [word, word]);
    form.append(
      this.group("leaves", `Who leaves after cycle ${cycle}?`, "checkbox", rows.map((id) => [id, short(id)])),
      this.group("enters", "Who enters?", "checkbox", queue.map((id) => [id, short(id)])),
      this.group("box", "The next box is …", "radio", boxes),
    );
    const submit = element("button", "bs-primary", "Check");
    submit.type = "submit";
    submit.dataset.testid = "check";
    form.append(submit);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.check(form);
    });
    this.root.replaceChildren(form);
  }

  group(name, legend, type, options) {
    const group = element("fieldset", "bs-group");
    group.dataset.part = name;
    group.append(element("legend", "", legend));
    if (!options.length) group.append(element("span", "bs-muted", "nobody is there"));
    else if (type === "checkbox") group.append(element("span", "bs-muted", "none, or: "));
    for (const [value, text] of options) {
      const label = element("label", "bs-option");
      const input = Object.assign(document.createElement("input"), { type, name, value });
      label.append(input, text);
      group.append(label);
    }
    return group;
  }

  check(form) {
    const chosen = (name) => [...form.querySelectorAll(`input[name=${name}]:checked`)].map((input) => input.value);
    const marks = grade(this.asked, { leaves: chosen("leaves"), enters: chosen("enters"), box: chosen("box")[0] ?? "" });
    const told = solution(this.host.trace(), this.asked);
    for (const group of form.querySelectorAll("fieldset")) {
      const { part } = group.dataset;
      group.disabled = true;
      const verdict = element("p", marks[part] ? "bs-right" : "bs-wrong", `${marks[part] ? "✓ Right" : "✗ Not quite"}: ${told[part].answer}.`);
      verdict.dataset.testid = `verdict-${part}`;
      group.append(verdict, ...told[part].why.map((text) => element("p", "bs-why", text)));
    }
    this.host.reveal();
    this.host.count(Object.values(marks).every(Boolean));
    const next = element("button", "bs-primary", "Next question");
    next.type = "button";
    next.dataset.testid = "next";
    next.addEventListener("click", () => this.open(this.asked.cycle + 1));
    form.querySelector("[type=submit]").replaceWith(next);
    next.focus();
  }
}
