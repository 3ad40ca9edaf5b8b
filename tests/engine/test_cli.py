"""The ``blockserve`` command as a shell sees it: last line JSON, mistakes in one line with exit code 2."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time

import pytest

from blockserve import Trace
from interrupts import hear_interrupts

KEYS = {
    "requests", "finished", "valid_tokens", "tokens_per_s", "cycles", "batch_mean", "padding_fraction", "budget",
    "cost_max", "effective_compute_ratio", "row_passes", "row_tokens", "accuracy", "wall_s", "preset",
}  # fmt: skip


def blockserve(*arguments, cwd=None, **options):
    command = [sys.executable, "-m", "blockserve.cli", *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=cwd, env=env, **options)


def last_line(done) -> dict:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_run_writes_a_trace_and_ends_with_its_numbers(tmp_path):
    done = blockserve("run", "-n", 12, "--token-budget", 512, "--trace", tmp_path / "out.jsonl")
    line = last_line(done)
    assert set(line) >= KEYS
    assert line["requests"] == line["finished"] == 12
    assert line["cost_max"] <= line["budget"] == 512
    assert sum(line["waste"].values()) == line["row_tokens"]
    trace = Trace.load(tmp_path / "out.jsonl")
    assert trace.complete
    assert len(trace.cycle_records) == line["cycles"]
    again = blockserve("run", "-n", 12, "--trace", tmp_path / "out.jsonl")
    assert again.returncode == 2
    assert "exists and would be overwritten" in again.stderr
    assert Trace.load(tmp_path / "out.jsonl") == trace
    assert last_line(blockserve("run", "-n", 2, "--trace", tmp_path / "out.jsonl", "--force"))["requests"] == 2


def test_static_gives_the_same_keys():
    line = last_line(blockserve("run", "--preset", "static", "--slots", 8, "-n", 9))
    assert set(line) >= KEYS
    assert line["budget"] is None
    assert line["preset"] == "static"


def test_prompts_of_ones_own(tmp_path):
    file = tmp_path / "prompts.jsonl"
    lines = [{"id": "a", "prompt": "Tom has 3 pens."}, {"id": "ü", "prompt": "Grüße 你好 🎈", "max_new_tokens": 16}]
    file.write_text("\n".join(json.dumps(x, ensure_ascii=False) for x in lines), encoding="utf-8")
    done = blockserve("run", "--prompts", file, "--slots", 2, "--outputs", tmp_path / "out.jsonl")
    line = last_line(done)
    assert line["requests"] == 2
    assert line["accuracy"] is None
    written = [json.loads(x) for x in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [x["id"] for x in written] == ["a", "ü"]


def test_an_online_run_prints_latencies(tmp_path):
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.01,20,17\n0.02,30,9\n")
    done = blockserve("run", "--lengths", tmp_path / "t.csv", "--arrivals", "poisson:50", "--eos", "ignore")
    assert last_line(done)["finished"] == 3
    assert "end_to_end" in done.stdout


def test_simulate_needs_nothing_but_a_number():
    line = last_line(blockserve("simulate", "--requests", 60))
    assert (line["requests"], line["finished"], line["simulated"]) == (60, 60, True)
    assert line["cost_max"] <= line["budget"]
    again = last_line(blockserve("simulate", "--requests", 60))
    assert again == line, "a virtual clock repeats"
    online = last_line(blockserve("simulate", "--requests", 60, "--arrivals", "poisson:1", "--slots", 4))
    assert online["wall_s"] > line["wall_s"]


def test_replay_says_what_would_have_been(tmp_path):
    recorded, replayed = tmp_path / "a.jsonl", tmp_path / "b.jsonl"
    last_line(blockserve("run", "-n", 12, "--preset", "blockserve-fixed", "--slots", 4, "--trace", recorded))
    line = last_line(blockserve("replay", recorded, "--preset", "static", "--slots", 4, "--out", replayed))
    assert line["simulated"] is True
    assert line["wall_s"] >= line["bound_s"]
    real = last_line(blockserve("run", "-n", 12, "--preset", "static", "--slots", 4, "--trace", tmp_path / "c.jsonl"))
    for key in ("cycles", "row_passes", "row_tokens", "waste", "accuracy"):
        assert line.get(key, real[key]) == real[key], key
    assert last_line(blockserve("diff", replayed, tmp_path / "c.jsonl"))["same"] is True
    assert last_line(blockserve("diff", recorded, replayed))["same"] is False


MISTAKES = {
    "unknown benchmark": (["simulate", "--lengths", "gsm9k"], "Did you mean 'gsm8k'"),
    "unknown shape": (["simulate", "--model", "llada"], "Did you mean 'llada-8b'"),
    "closed loop without answers": (["simulate", "--arrivals", "closed:3"], "use an open process"),
    "no trace to replay": (["replay", "nowhere.jsonl"], "no trace file at 'nowhere.jsonl'"),
    "unknown arrivals": (["run", "--arrivals", "poison:3"], "Did you mean 'poisson'"),
    "unknown model": (["run", "--model", "tiny-lada"], "Did you mean 'tiny-llada'"),
    "unknown task": (["run", "--tasks", "arithmetics"], "Did you mean 'arithmetic'"),
    "unknown preset": (["run", "--preset", "blockserve"], "Known: block-fifo"),
    "unknown order": (["run", "--order", "lifo"], "Did you mean 'fifo'"),
    "unknown option": (["run", "--bugdet", "3"], "bugdet"),
    "ill-typed option": (["run", "-n", "many"], "valid integer"),
    "no requests": (["run", "-n", "0"], "0"),
    "budget not a number": (["run", "--token-budget", "lots"], '--token-budget must be a whole number or "auto"'),
    "threshold 0": (["run", "--threshold", "0"], "threshold must be in (0, 1], got 0.0"),
    "threshold 1.5": (["run", "--threshold", "1.5"], "threshold must be in (0, 1], got 1.5"),
    "budget too small": (["run", "--token-budget", "64"], "the token budget of 64"),
    "slots and budget": (["run", "--slots", "2", "--token-budget", "900"], "exclude each other"),
    "prompts and tasks": (["run", "--tasks", "arithmetic", "--prompts", "x.jsonl"], "exclude each other"),
    "missing prompt file": (["run", "--prompts", "nowhere.jsonl"], "nowhere.jsonl"),
    "unknown notebook": (["report", "00_tuor"], "Did you mean '00_tour'"),
    "unknown parameter": (["report", "00_tour", "-p", "bugdet=3"], "Did you mean 'token_budget'"),
    "ill-typed parameter": (["report", "00_tour", "-p", "n=lots"], "'n' must be int"),
    "unknown recipe": (["train", "--recipe", "tiny-lada"], "Did you mean 'tiny-llada'"),
    "unknown command": (["rnu"], "rnu"),
    "trace folder missing": (["run", "--trace", "no/such/folder/t.jsonl"], "does not exist; create it"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_clear_line_and_exit_code_2(name, tmp_path):
    arguments, expected = MISTAKES[name]
    done = blockserve(*arguments, cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert expected in done.stderr
    assert done.stderr.startswith("blockserve: ")
    assert "Traceback" not in done.stderr
    if name != "budget too small":  # that one lists every offender, one a line
        assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.glob("*.jsonl")), "nothing is left behind"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"id": "a", "prompt": "x"}\n{oops\n', "line 2"),
        ('{"id": "a", "prompt": "x"}\n{"id": "b"}\n', "line 2"),
        ('{"id": "a", "prompt": ""}\n', "line 1"),
        ('{"id": "a", "prompt": 3}\n', "line 1"),
        ('{"id": "a", "prompt": "x", "max_new_tokens": -1}\n', "line 1"),
        ('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n', "line 2"),
        ("", "prompts.jsonl"),
        ('{"id": "a", "prompt": "half <|mdm_mask|> full"}\n', "holds the mask token"),
        (json.dumps({"id": "a", "prompt": "word " * 600}), "more than the model's context of 512"),
    ],
)
def test_a_malformed_prompt_file_names_the_line(text, expected, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(text)
    done = blockserve("run", "--prompts", "prompts.jsonl", cwd=tmp_path)
    assert done.returncode == 2
    assert expected in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_skip_invalid_runs_the_rest(tmp_path):
    text = '{"id": "a", "prompt": "Tom has 3 pens."}\n' + json.dumps({"id": "b", "prompt": "word " * 600})
    (tmp_path / "prompts.jsonl").write_text(text)
    line = last_line(blockserve("run", "--prompts", tmp_path / "prompts.jsonl", "--skip-invalid"))
    assert (line["requests"], line["finished"]) == (2, 1)


def test_an_interrupt_keeps_the_trace(tmp_path):
    path = tmp_path / "t.jsonl"
    command = [sys.executable, "-m", "blockserve.cli", "run", "-n", "600", "--slots", "1", "--trace", str(path)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, env=env, preexec_fn=hear_interrupts, **pipes)
    deadline = time.monotonic() + 60
    while not (path.exists() and b'"kind":"cycle"' in path.read_bytes()):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert json.loads(out.splitlines()[-1])["requests"] == 600
    trace = Trace.load(path)
    assert trace.end.status == "interrupted"
    assert len(trace.completion_records) == 600


def test_version_models_and_help():
    assert re.fullmatch(r"\d+\.\d+\.\d+\n", blockserve("--version").stdout)
    assert "tiny-llada" in [m["name"] for m in last_line(blockserve("models"))["models"]]
    shown = blockserve("--help").stdout
    assert all(command in shown for command in ("run", "report", "train", "lab", "models"))


def test_lab_copies_the_notebooks(tmp_path):
    line = last_line(blockserve("lab", tmp_path / "mine", "--no-launch"))
    assert line["copied"] >= 1
    assert (tmp_path / "mine" / "00_tour.ipynb").is_file()


def test_policies_budget_race_and_invariance_end_with_their_numbers():
    assert [p["preset"] for p in last_line(blockserve("policies"))["presets"]][-1] == "blockserve-budget"
    budget = last_line(blockserve("budget", "--device", "cpu"))
    assert budget["method"] == "analytic" and budget["budget"] <= 8 * 512
    race = last_line(blockserve("race", "static", "block-fifo", "-n", 6, "--slots", 2, "--repeats", 1))
    assert race["static"]["speedup"] == 1.0
    assert race["block-fifo"]["row_passes"] <= race["static"]["row_passes"]
    found = last_line(blockserve("check-invariance", "-n", 4, "--dtype", "float64"))
    assert found["lowest"] == 1.0
