"""`blockserve eval`: its numbers against counting by hand, its grid, its table, and what an interrupt leaves."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product

import pytest

from blockserve import Engine, Trace, Workload, load_model
from blockserve.cli import app
from blockserve.core import BlockServeError, ConfigError
from blockserve.execution.executor import TorchExecutor
from blockserve.studies.quality import evaluate, markdown_table, quality
from blockserve.studies.results import wilson
from blockserve.tracing.records import CompletionRecord

MODEL = load_model("tiny-llada", dtype="float32", device="cpu")
N = 12
SETTINGS = {"block_length": 8, "cache": "none", "suffix": 1, "threshold": 0.7}


@pytest.fixture(scope="module")
def workload() -> Workload:
    return Workload.tasks("arithmetic", n=N, seed=7)


@pytest.fixture(scope="module")
def run(workload):
    """The same answers by another schedule: one row at a time, whole requests."""
    return Engine(MODEL, "static", slots=1, **SETTINGS).run(workload)


def measure(**options) -> list:
    return list(evaluate(MODEL, **{"tasks": "arithmetic", "n": N} | options))


def test_the_numbers_are_those_counted_by_hand_from_a_run(run, workload):
    (row,) = measure(**{f"{name}s".replace("suffixs", "suffixes"): value for name, value in SETTINGS.items()})
    final = re.compile(r"(\d+)\.?\s*$")
    right = [final.search(c.text) and final.search(c.text)[1] == final.search(r.tags["reference"])[1]
             for c, r in zip(run.completions, workload, strict=True)]  # fmt: skip
    written = [c.text.strip() == r.tags["reference"].strip() for c, r in zip(run.completions, workload, strict=True)]
    blocks: dict[str, set[int]] = {r.id: set() for r in workload}
    steps, passes = {}, 0
    for cycle in run.trace.cycle_records:
        for line in cycle.rows:
            if not line.frozen:
                blocks[line.id].add(line.block)
                steps[line.id, line.block] = len(line.commits)
                passes += line.passes
    ends = [[*c.output_ids, MODEL.end_ids[0]].index(MODEL.end_ids[0]) for c in run.completions]
    mean = sum(steps.values()) / len(steps)
    assert (row.task, row.limit, row.blocks_limit, row.problems, row.seed) == ("arithmetic", 80, 10, N, 7)
    assert {name: getattr(row, name) for name in SETTINGS} == SETTINGS
    assert (row.device, row.dtype) == ("cpu", "float32")
    assert row.accuracy == pytest.approx(sum(map(bool, right)) / N)
    assert row.all_steps == pytest.approx(sum(written) / N)
    assert row.ended_by_eos == pytest.approx(sum(MODEL.end_ids[0] in c.output_ids for c in run.completions) / N)
    assert row.blocks_mean == pytest.approx(sum(map(len, blocks.values())) / N)
    assert row.blocks_max == max(map(len, blocks.values())) > 3
    assert row.steps_mean == pytest.approx(mean) and mean > 1
    assert row.steps_cv == pytest.approx((sum((s - mean) ** 2 for s in steps.values()) / len(steps)) ** 0.5 / mean)
    assert row.tokens_per_forward == pytest.approx(sum(ends) / passes)


def answered(trace: Trace, texts: dict[str, str], workload: Workload) -> Trace:
    """``trace`` with these answers, in two blocks each; an empty one ran to its limit in four."""

    def other(record):
        if not isinstance(record, CompletionRecord):
            return record
        text = texts[record.id]
        reason, blocks = ("eos", 2) if text else ("length", 4)
        correct = workload.grade(record.id, text).correct
        return replace(record, text=text, correct=correct, reason=reason, blocks=blocks)

    return Trace(map(other, trace.records))


def test_wrong_answers_wrong_steps_and_missing_ends_are_told_apart(run, workload):
    right = {r.id: r.tags["reference"] for r in workload}
    bare = {key: text[text.index(" Answer:") :] for key, text in list(right.items())[:3]}  # the result and no step
    missing = dict.fromkeys(list(right)[3:5], "")
    wrong = {key: right[key] + "00" for key in list(right)[5:6]}  # every step, another result

    def counts(texts):
        q = quality(answered(run.trace, texts, workload), workload, 7)
        return N * q.accuracy, N * q.all_steps, N * q.ended_by_eos, N * q.blocks_mean, q.blocks_max, q.blocks_limit

    assert counts(right) == pytest.approx((N, N, N, 2 * N, 2, 10))
    assert counts(right | bare | missing | wrong) == pytest.approx((N - 3, N - 5, N - 2, 2 * N + 4, 4, 10))


def test_a_task_without_steps_says_so():
    (row,) = measure(tasks="facts", n=3)
    assert row.all_steps is None and row.limit == 16
    assert [cell.strip() for cell in markdown_table([row]).splitlines()[-1].split("|")][4] == "–"


def test_every_combination_comes_once_in_the_stated_order():
    rows = measure(tasks="facts,arithmetic", n=1, thresholds=(0.9, 0.5), caches=("none", "dual"),
                   suffixes=(0, "full"), block_lengths=(32, 8, 32))  # fmt: skip
    found = [(r.task, r.block_length, r.cache, r.suffix, r.threshold) for r in rows]
    assert found == list(product(("facts", "arithmetic"), (32, 8), ("none", "dual"), (0, "full"), (0.9, 0.5)))
    assert {(r.task, r.block_length): r.blocks_limit for r in rows} == {
        ("facts", 32): 1, ("facts", 8): 2, ("arithmetic", 32): 3, ("arithmetic", 8): 10,
    }  # fmt: skip


def test_the_table_shows_the_numbers_and_says_once_what_all_rows_share():
    rows = measure(thresholds=(0.9, 0.4), block_lengths=16)
    caption, empty, header, rule, *lines = markdown_table(rows).splitlines()
    assert caption == "In every row: problems 12, seed 7, dtype float32, device cpu, L 16, cache dual, suffix 0."
    assert not empty and len(lines) == 2 and set(rule) <= set("| -")
    assert len({len(line) for line in (header, rule, *lines)}) == 1, "columns stand below one another"
    names, *cells = ([cell.strip() for cell in line.strip("|").split("|")] for line in (header, *lines))
    for row, cell in zip(rows, (dict(zip(names, c, strict=True)) for c in cells), strict=True):
        low, high = wilson(row.accuracy, N)
        assert cell == {
            "task": "arithmetic",
            "limit (blocks)": "80 (5)",
            "threshold": str(row.threshold),
            "final answer right (95% interval)": f"{row.accuracy:.1%} ({100 * low:.1f}–{100 * high:.1f})",
            "every step right": f"{row.all_steps:.1%}",
            "blocks, mean (max)": f"{row.blocks_mean:.2f} ({row.blocks_max})",
            "steps a block, mean (CV)": f"{row.steps_mean:.2f} ({row.steps_cv:.2f})",
            "valid tokens a row pass": f"{row.tokens_per_forward:.2f}",
        }
    assert rows[0].steps_mean > rows[1].steps_mean
    unlike = markdown_table([rows[0], replace(rows[1], problems=13, seed=8)])
    assert "problems" not in unlike.splitlines()[0] and "seed" in unlike.splitlines()[2]
    with pytest.raises(ConfigError, match="no rows to show"):
        markdown_table([])


@pytest.mark.parametrize(
    ("right", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (190, 200, 0.9104, 0.9726)],
)
def test_wilsons_interval(right, n, low, high):
    """Against Wilson's closed form at k = 0 and k = n, z²/(n + z²), and published tables."""
    assert wilson(right / n, n) == (pytest.approx(low, abs=1e-4), pytest.approx(high, abs=1e-4))


MISTAKES = {
    "unknown task": ({"tasks": "arithmetic,sums"}, "unknown task 'sums'"),
    "threshold": ({"thresholds": (0.9, 1.5)}, r"threshold must be in \(0, 1\], got 1.5"),
    "suffix": ({"suffixes": (0, "two")}, "suffix must be a whole number of at least 0 or \"full\", got 'two'"),
    "cache": ({"caches": ("dual", "duel")}, "unknown cache mode 'duel'. Did you mean 'dual'"),
    "nothing": ({"caches": ()}, "no cache given; give one or more"),
    "n": ({"n": 0}, "n must be a whole number of at least 1, got 0"),
    "slots": ({"slots": 0}, "slots must be .* got 0"),
    "context": ({"block_lengths": (16, 512)}, r"requests cannot be served"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_before_anything_runs(name, monkeypatch):
    monkeypatch.setattr(TorchExecutor, "execute", lambda *_: pytest.fail("something ran"))
    options, message = MISTAKES[name]
    with pytest.raises(BlockServeError, match=message):
        evaluate(MODEL, **{"tasks": "arithmetic", "n": N} | options)


# ---------------------------------------------------------------------------------------- the command


def command(*arguments) -> subprocess.CompletedProcess:
    whole = [sys.executable, "-m", "blockserve.cli", "eval", "--tasks", "facts,arithmetic", *map(str, arguments)]
    env = os.environ | {"OMP_NUM_THREADS": "1"}
    return subprocess.run(whole, capture_output=True, text=True, timeout=120, env=env)


def test_the_command_prints_the_table_and_ends_with_all_numbers_as_json():
    done = command("-n", 5, "--seed", 3, "--threshold", "0.9,0.6", "--suffix", "0, full", "--device", "cpu")
    assert done.returncode == 0, done.stderr
    options = {"n": 5, "seed": 3, "thresholds": (0.9, 0.6), "suffixes": (0, "full")}
    rows = measure(tasks="facts,arithmetic", **options)
    table, _, line = done.stdout.rstrip("\n").rpartition("\n")
    assert table == markdown_table(rows)
    assert "eval: 100%" in done.stderr, "the progress bar"
    assert json.loads(line) == {
        "model": "tiny-llada",
        "accuracy": {"facts": rows[0].accuracy, "arithmetic": rows[4].accuracy},
        "settings": [asdict(row) for row in rows],
        "n": 5,
        "seed": 3,
        "interrupted": False,
    }


def test_the_accuracy_of_a_task_is_that_of_its_first_setting(monkeypatch, capsys):
    (row,) = measure(n=1)
    rows = [replace(row, task=task, accuracy=a) for task, a in (("x", 0.9), ("x", 0.5), ("y", 0.2), ("y", 0.4))]
    monkeypatch.setattr("blockserve.studies.quality.evaluate", lambda *_, **__: iter(rows))
    app(["eval"], standalone_mode=False)
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["accuracy"] == {"x": 0.9, "y": 0.2}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--threshold", "0.9,1.5"), "threshold must be in (0, 1], got 1.5"),
        (("--threshold", "0.9,high"), "--threshold must be numbers between commas, got '0.9,high'"),
        (("--suffix", "two"), "--suffix must be a whole number or \"full\", got 'two'"),
        (("--block-length", "8,16.5"), "--block-length must be whole numbers between commas, got '8,16.5'"),
        (("--tasks", "arithmetics"), "Did you mean 'arithmetic'"),
        (("--cache", "dual,"), "unknown cache mode ''"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(arguments, message):
    done = command(*arguments)
    assert done.returncode == 2 and not done.stdout
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("finished", [0, 2])
def test_an_interrupt_keeps_the_rows_that_are_finished(finished, monkeypatch, capsys):
    """Ctrl-C in the middle of a run, after that many settings."""
    settings = measure(n=3, thresholds=(0.9, 0.5, 0.7))
    real, seen = TorchExecutor.execute, set()

    def interrupted(executor, plan):
        seen.add(id(executor))
        if len(seen) > finished and plan.cycle == 1:
            raise KeyboardInterrupt
        kept.append(executor)  # so that no other gets its id
        return real(executor, plan)

    kept: list = []
    monkeypatch.setattr(TorchExecutor, "execute", interrupted)
    arguments = ["eval", "--tasks", "arithmetic", "-n", "3", "--threshold", "0.9,0.5,0.7", "--device", "cpu"]
    assert app(arguments, standalone_mode=False) == 130
    shown = capsys.readouterr().out
    line = json.loads(shown.splitlines()[-1])
    assert line["interrupted"] is True and line["n"] == 3
    assert line["settings"] == [asdict(row) for row in settings[:finished]]
    if finished:
        assert markdown_table(settings[:finished]) in shown
        assert line["accuracy"] == {"arithmetic": settings[0].accuracy}
    else:
        assert "interrupted before the first setting was measured" in shown and line["accuracy"] == {}
