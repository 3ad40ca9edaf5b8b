// What the model has sent: a trace, opened once for all views of it, and grown by deltas.

import { appendDetail, openDetail } from "./detail.js";
import { appendDelta, inflate, openTrace } from "./trace.js";

/** The model's trace, opened once for all its views, and grown by deltas. Calls its listeners after every change. */
export class Store {
  constructor(model) {
    this.model = model;
    this.listeners = new Set();
    this.stops = [];
    const follow = (name, handler) => {
      model.on(`change:${name}`, handler);
      this.stops.push(() => model.off(`change:${name}`, handler));
    };
    for (const name of ["data", "spec", "meta"]) follow(name, () => this.reload());
    for (const name of ["detail", "detail_spec", "detail_meta"]) follow(name, () => this.reload(false));
    follow("delta", () => this.take(model.get("delta")));
    this.ready = this.load();
  }

  async load() {
    const { model } = this;
    const [meta, spec] = [model.get("meta"), model.get("spec")];
    const data = meta.packed ? await inflate(model.get("data"), meta) : model.get("data");
    this.trace = openTrace(spec, data, meta);
    this.seq = meta.seq ?? 0;
    await this.loadDetail();
    this.take(model.get("delta"));
    this.tell("loaded");
  }

  async loadDetail() {
    const { model } = this;
    const [meta, spec] = [model.get("detail_meta") ?? {}, model.get("detail_spec") ?? []];
    const data = meta.packed ? await inflate(model.get("detail"), meta) : model.get("detail");
    this.detail = openDetail(spec, data, meta);
  }

  /** Several traits change together: open what they hold once. */
  reload(all = true) {
    this.pending = { all: all || this.pending?.all };
    this.ready = this.ready.catch(() => {}).then(async () => {
      if (!this.pending) return;
      const everything = this.pending.all;
      this.pending = null;
      if (everything) return this.load();
      await this.loadDetail();
      this.tell("detail");
    });
  }

  take(delta) {
    if (!delta?.seq || delta.seq <= this.seq || this.pending) return;
    if (delta.seq !== this.seq + 1) return this.model.send({ type: "whole" });
    this.seq = delta.seq;
    delta.cycles.forEach(({ detail }, i) => {
      if (detail.length) this.detail = appendDetail(this.detail, this.trace.meta.cycles + i, detail);
    });
    appendDelta(this.trace, delta);
    this.tell("grown");
  }

  tell(what) {
    for (const listener of this.listeners) listener(what);
  }

  close() {
    for (const stop of this.stops) stop();
  }
}
