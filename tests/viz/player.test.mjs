// The player's pure helpers, on traces that test_node.py wrote. PLAYER: the module; TRACES: a JSON file.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { pathToFileURL } from "node:url";

const player = await import(pathToFileURL(process.env.PLAYER));
const saved = JSON.parse(readFileSync(process.env.TRACES, "utf8"));
const open = ({ spec, data, meta }) => player.openTrace(spec, Uint8Array.from(Buffer.from(data, "base64")), meta);
const [figure1] = saved;

test("columns are views of the bytes, wherever these begin", () => {
  const spec = [{ name: "a", dtype: "f8", offset: 8, length: 2 }, { name: "b", dtype: "u1", offset: 0, length: 3, constant: 9 }];
  const bytes = new Uint8Array(3 + 24);
  new DataView(bytes.buffer).setFloat64(3 + 8, 1.5, true);
  const columns = player.decodeColumns(spec, bytes.subarray(3));
  assert.deepEqual([...columns.a, ...columns.b], [1.5, 0, 9, 9, 9]);
  const aligned = new Uint8Array(24);
  assert.equal(player.decodeColumns(spec, aligned).a.buffer, aligned.buffer, "no copy when aligned");
});

test("running totals", () => assert.deepEqual([...player.starts([2, 0, 5])], [0, 2, 2, 7]));

test("every frame equals the one that Python decodes", () => {
  let frames = 0;
  for (const one of saved) {
    const trace = open(one);
    for (const [cycle, expected] of one.frames.entries()) {
      const { rows, queue, width, budget, steps, edge, waiting } = player.frameState(trace, cycle);
      const plain = rows.map(({ stay, ...row }) => row);
      assert.deepEqual({ rows: plain, queue, width, budget, steps, edge, waiting }, expected, `cycle ${cycle}`);
      frames++;
    }
  }
  assert.ok(frames > 100, `only ${frames} frames compared`);
});

test("a run in progress gives the same frames once its deltas are appended", () => {
  assert.ok(saved.filter((one) => one.live?.deltas.length > 1).length > 10);
  for (const { live, frames } of saved.filter((one) => one.live)) {
    const trace = open(live);
    for (const delta of live.deltas) player.appendDelta(trace, delta);
    assert.equal(trace.meta.cycles, frames.length);
    for (const [cycle, expected] of frames.entries()) {
      const { rows, queue, width, budget, steps, edge, waiting } = player.frameState(trace, cycle);
      const plain = rows.map(({ stay, ...row }) => row);
      assert.deepEqual({ rows: plain, queue, width, budget, steps, edge, waiting }, expected, `cycle ${cycle}`);
    }
  }
});

test("every explanation is that of trace.explain", () => {
  const reasons = new Set();
  for (const one of saved.filter((o) => o.explained)) {
    const trace = open(one);
    for (const [cycle, sentences] of one.explained.entries())
      for (const [id, sentence] of Object.entries(sentences)) {
        assert.equal(player.explain(trace, cycle, id), sentence, `${one.name}, cycle ${cycle}`);
        reasons.add(/refused: (\w+)|(admitted) \((\w+)|(had left)|(arrives)/.exec(sentence)?.slice(1).filter(Boolean).join(" "));
      }
  }
  for (const reason of ["budget", "box", "slots", "group", "held", "had left", "arrives", "admitted head", "admitted fits", "admitted readmitted"])
    assert.ok(reasons.has(reason), `no trace shows ${reason}: ${[...reasons].join(", ")}`);
});

test("the queue can be listed in part", () => {
  const trace = saved.map(open).find((t) => player.frameState(t, 0).queue.length > 2);
  assert.deepEqual(player.frameState(trace, 0, 2).queue, player.frameState(trace, 0).queue.slice(0, 2));
});

test("a block fills by its commits, and evenly without them", () => {
  assert.deepEqual([0, 1, 2, 3].map((n) => player.committed({ commits: [3, 1] }, n, 4, 2)), [0, 3, 4, 4]);
  assert.deepEqual([0, 1, 2, 9].map((n) => player.committed({ commits: null, steps: 2 }, n, 4, 5)), [0, 2, 4, 4]);
  assert.deepEqual([0, 5].map((n) => player.committed({ commits: null, steps: null }, n, 4, 5)), [0, 4]);
});

test("a cycle glides in, denoises, then shows its boundary", () => {
  assert.deepEqual(player.phase(0, 3), { glide: 0, step: 0, boundary: false });
  assert.deepEqual(player.phase(1, 3), { glide: 1, step: 3, boundary: true });
  const middle = player.phase(0.48, 4);
  assert.ok(middle.glide === 1 && Math.abs(middle.step - 2) < 1e-9 && !middle.boundary);
});

const CELLS = new Set(["padding", "reclaimed", "prompt", "finished", "active", "masked", "ended", "suffix"]);

for (const [width, dpr] of [[600, 1], [1100, 2], [733, 1.5]]) {
  test(`rectangles are whole device pixels inside the picture (${width} px at ${dpr})`, () => {
    for (const one of saved) {
      const trace = open(one);
      const view = player.measure(trace, width, dpr);
      for (let cycle = 0; cycle < trace.meta.cycles; cycle++) {
        const frame = player.frameState(trace, cycle);
        for (const rect of player.layoutFrame(frame, view).rects) {
          assert.ok(rect.w >= 0 && rect.h > 0 && rect.x >= 0 && rect.x + rect.w <= width, JSON.stringify(rect));
          assert.ok(rect.y >= 0 && rect.y + rect.h <= view.height, JSON.stringify(rect));
          if (!CELLS.has(rect.kind)) continue;
          for (const edge of [rect.x * dpr, rect.y * dpr, rect.w * dpr]) assert.ok(Math.abs(edge - Math.round(edge)) < 1e-6);
        }
      }
    }
  });
}

test("a row's cells cover the box once, left to right, at rest and between", () => {
  const trace = open(figure1);
  const view = player.measure(trace, 1000);
  for (let cycle = 0; cycle < trace.meta.cycles; cycle++) {
    const frame = player.frameState(trace, cycle);
    for (const t of [0.2, 0.5, 1]) {
      const layout = player.layoutFrame(frame, view, t);
      for (const row of frame.rows) {
        const cells = layout.rects.filter((r) => r.stay === row.stay && CELLS.has(r.kind) && r.alpha === 1).sort((a, b) => a.x - b.x);
        assert.equal(cells[0].x, view.snap(view.right - frame.width * view.scale));
        assert.equal(cells.at(-1).x + cells.at(-1).w, view.right, "rows end at the block boundary");
        for (let i = 1; i < cells.length; i++) assert.ok(Math.abs(cells[i].x - cells[i - 1].x - cells[i - 1].w) < 1e-9);
      }
    }
  }
});

test("what each cycle of Figure 1 shows", () => {
  const trace = open(figure1);
  const view = player.measure(trace, 1000);
  const kinds = (cycle, t) => new Set(player.layoutFrame(player.frameState(trace, cycle), view, t).rects.map((r) => r.kind));
  const words = (cycle) => player.layoutFrame(player.frameState(trace, cycle), view).labels.map((l) => l.text);
  assert.ok(kinds(0, 1).has("next") && !kinds(0, 1).has("ended") && !kinds(0, 0.3).has("next"));
  assert.ok(kinds(0, 0.3).has("masked") && !kinds(0, 1).has("masked"));
  assert.ok(kinds(1, 1).has("ended") && kinds(1, 1).has("enters") && words(1).includes("✓ Evict"));
  assert.ok(kinds(2, 1).has("reclaimed") && !kinds(2, 0.3).has("reclaimed") && words(2).includes("Refill"));
  assert.ok(words(1).includes("3 × 32 = 96 tokens") && words(1).some((w) => w.includes("β = 108")));
});

test("an id keeps its end when it is cut", () => {
  assert.equal(player.clip("arithmetic-56", 6), "…ic-56");
  assert.equal(player.clip("arithmetic-56", 12), "arith…tic-56");
  assert.equal(player.clip("short", 6), "short");
  assert.equal([...player.clip("日本語の長い名前", 4)].length, 4);
});

test("a frame in one sentence", () => {
  const text = player.describe(player.frameState(open(figure1), 1));
  assert.equal(text, "Cycle 1: 3 rows of 32 tokens, cost 96; budget 108; 3 left (eos); 1 waiting");
});

test("what all ids share is left out of labels", () => {
  const trace = open(saved.find((one) => one.frames[0].rows.some((row) => row.id === "問い-1")));
  assert.equal(trace.prefix, "問い-");
  assert.equal(open(figure1).prefix, "");
});
