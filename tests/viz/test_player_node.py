"""Runs ``player.test.mjs`` under ``node --test``, and times the player on a very long trace."""

from __future__ import annotations

import base64
import json
import os
import random
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from blockserve.tracing.trace import Trace
from blockserve_viz.decode import Frames
from blockserve_viz.esm import PLAYER, module
from blockserve_viz.feed import Deltas
from blockserve_viz.frames import encode, encode_stays
from blockserve_viz.packing import Encoded
from blockserve_viz.stays import collect_requests, collect_stays, shape_of
from hand_traces import HandTrace, Spec, figure1, long_encoded, simulate
from simulated import scheduled

HERE = Path(__file__).parent


def some_traces() -> list[HandTrace]:
    """Figure 1, and twenty random traces of all kinds, preempted requests and a name in another script included."""
    rng = random.Random(0)
    crowd = simulate([Spec(f"c{n}", 9 + n, 3, 1 + n % 3) for n in range(25)], budget=150)
    traces = [figure1(1), figure1(2), crowd]
    for i in range(20):
        specs = []
        for n in range(rng.randint(1, 9)):
            blocks = rng.randint(1, 5)
            specs.append(Spec(f"問い-{n}", rng.randint(1, 90), blocks, rng.randint(1, blocks), rng.choice([0.0, 3.5])))
        traces.append(
            simulate(
                specs,
                length=rng.choice([1, 4, 7]),
                budget=rng.choice([10**9, 400]),
                suffix=rng.choice([0, 0, 2, "full"]),
                order=rng.choice(["longest_first", "shortest_first", "fifo"]),
                quantum=rng.choice(["block", "block", "request"]),
                ignore=rng.random() < 0.3,
                preempt_at=(1, 2, 4),
                seed=i,
            )
        )
    return traces


def live(trace: HandTrace, start: int) -> dict[str, Any]:
    """The trace as a run in progress: what was there after ``start`` records, and the deltas since."""
    growing = Trace(trace.records[:start])
    shape = shape_of(trace)  # as the run record says, where there is one
    book = collect_stays(growing, shape, collect_requests(growing))
    told = as_json(encode_stays(growing, book))
    news = Deltas(growing, book, Trace(growing.records))
    deltas = []
    for number, record in enumerate(trace.records[start:]):
        growing.append(record)
        if number % 3 == 0 and (delta := news.next()):
            deltas.append(delta)
    return {**told, "deltas": [*deltas, *filter(None, [news.next()])]}


def as_json(encoded: Encoded) -> dict[str, Any]:
    return {"spec": encoded.spec, "data": base64.b64encode(encoded.data).decode(), "meta": encoded.meta}


def explained(trace: Trace) -> list[dict[str, str]]:
    """What `explain` says of every request at every cycle."""
    ids = [r.id for r in trace.request_records]
    return [{i: trace.explain(c.index, i) for i in ids} for c in trace.cycle_records]


def frame_json(frames: Frames, cycle: int) -> dict[str, Any]:
    frame = asdict(frames[cycle])
    del frame["cycle"], frame["start"]
    return frame


def run_node(node: str, tmp_path: Path, *arguments: str, **environment: str) -> str:
    """Run node with ``PLAYER`` set to the module, under a name that node takes for an ES module; returns its output."""
    player = tmp_path / "player.mjs"
    player.write_text(module(*PLAYER), encoding="utf-8")
    settings = {**os.environ, "PLAYER": str(player), **environment}
    done = subprocess.run([node, *arguments], env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_pure_helpers(node: str, tmp_path: Path) -> None:
    saved = []
    for trace in some_traces():
        encoded = encode(trace)
        frames = Frames(encoded)
        told = {"frames": [frame_json(frames, c) for c in range(len(frames))]}
        saved.append(as_json(encoded) | told | {"live": live(trace, len(saved) % 6 + len(trace.request_records) + 1)})
    for name, trace in scheduled():
        saved.append({"name": name, **as_json(encode(trace)), "frames": [], "explained": explained(trace)})
    file = tmp_path / "traces.json"
    file.write_text(json.dumps(saved), encoding="utf-8")
    output = run_node(node, tmp_path, "--test", str(HERE / "player.test.mjs"), TRACES=str(file))
    assert "# fail 0" in output and "# pass 0" not in output


TIMING = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { inflate, openTrace, frameState, measure, layoutFrame } = await import(pathToFileURL(process.env.PLAYER));
const { spec, data, meta } = JSON.parse(readFileSync(process.env.TRACES, "utf8"));
const bytes = Uint8Array.from(Buffer.from(data, "base64"));
const start = performance.now();
const trace = openTrace(spec, await inflate(bytes, meta), meta);
frameState(trace, 0, 64);
const opened = performance.now() - start;
const view = measure(trace, 1100);
const times = [];
for (let i = 0; i < 300; i++) {
  const from = performance.now();
  layoutFrame(frameState(trace, (i * 331) % meta.cycles, 64), view, 0.5);
  times.push(performance.now() - from);
}
times.sort((a, b) => a - b);
console.log(JSON.stringify({ opened, frame: times[150], slow: times[285] }));
"""


@pytest.mark.parametrize("stay", [25, 3])
def test_a_hundred_thousand_cycles_open_quickly(node: str, tmp_path: Path, stay: int) -> None:
    file, script = tmp_path / "long.json", tmp_path / "timing.mjs"
    file.write_text(json.dumps(as_json(long_encoded(stay))))
    script.write_text(TIMING)
    times = json.loads(run_node(node, tmp_path, str(script), TRACES=str(file)))
    print(
        f"100,000 cycles × 64 rows, stays of {stay}: opened in {times['opened']:.0f} ms, "
        f"a frame takes {times['frame']:.2f} ms"
    )
    assert times["opened"] < 2_000 and times["slow"] < 20, times
