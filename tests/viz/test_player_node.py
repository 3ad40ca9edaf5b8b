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

from blockserve_viz.decode import Frames
from blockserve_viz.frames import Encoded, encode, pack
from hand_traces import HandTrace, Spec, figure1, long_run, simulate

HERE = Path(__file__).parent
PLAYER = HERE.parents[1] / "viz/blockserve_viz/static/player.js"


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


def as_json(encoded: Encoded) -> dict[str, Any]:
    return {"spec": encoded.spec, "data": base64.b64encode(encoded.data).decode(), "meta": encoded.meta}


def frame_json(frames: Frames, cycle: int) -> dict[str, Any]:
    frame = asdict(frames[cycle])
    del frame["cycle"], frame["start"]
    return frame


def run_node(node: str, tmp_path: Path, *arguments: str, **environment: str) -> str:
    """Run node with ``PLAYER`` set to the module, under a name that node takes for an ES module; returns its output."""
    module = tmp_path / "player.mjs"
    module.write_text(PLAYER.read_text(encoding="utf-8"), encoding="utf-8")
    settings = {**os.environ, "PLAYER": str(module), **environment}
    done = subprocess.run([node, *arguments], env=settings, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_the_pure_helpers(node: str, tmp_path: Path) -> None:
    saved = []
    for trace in some_traces():
        encoded = encode(trace)
        frames = Frames(encoded)
        saved.append({**as_json(encoded), "frames": [frame_json(frames, c) for c in range(len(frames))]})
    file = tmp_path / "traces.json"
    file.write_text(json.dumps(saved), encoding="utf-8")
    output = run_node(node, tmp_path, "--test", str(HERE / "player.test.mjs"), TRACES=str(file))
    assert "# fail 0" in output and "# pass 0" not in output


TIMING = """
import { readFileSync } from "node:fs";
import { pathToFileURL } from "node:url";
const { openTrace, frameState, measure, layoutFrame } = await import(pathToFileURL(process.env.PLAYER));
const { spec, data, meta } = JSON.parse(readFileSync(process.env.TRACES, "utf8"));
const bytes = Uint8Array.from(Buffer.from(data, "base64"));
const start = performance.now();
const trace = openTrace(spec, bytes, meta);
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


def test_a_hundred_thousand_cycles_open_quickly(node: str, tmp_path: Path) -> None:
    meta = {"cycles": 100_000, "block_length": 32, "suffix": 0, "order": "longest_first"}
    file, script = tmp_path / "long.json", tmp_path / "timing.mjs"
    file.write_text(json.dumps(as_json(pack(long_run(), meta))))
    script.write_text(TIMING)
    times = json.loads(run_node(node, tmp_path, str(script), TRACES=str(file)))
    print(f"100,000 cycles × 64 rows: opened in {times['opened']:.0f} ms, a frame takes {times['frame']:.2f} ms")
    assert times["opened"] < 2_000 and times["slow"] < 20, times


