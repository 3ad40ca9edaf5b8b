"""Traces: files that survive a kill, DataFrames, metrics against numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from blockserve.core import ConfigError, TraceError, UnknownNameError
from blockserve.tracing import Trace, TraceWriter
from blockserve.tracing.metrics import (
    WASTE_CATEGORIES,
    compare,
    effective_compute_ratio,
    goodput,
    latency,
    latency_quantiles,
    quantile,
    straggler_wait,
    summarize,
    waste,
)
from blockserve.tracing.records import (
    CompletionRecord,
    CycleRecord,
    EndRecord,
    RequestRecord,
    RowRecord,
    RunRecord,
    StepRecord,
    WarningRecord,
    from_dict,
    to_dict,
)

RUN = RunRecord(
    preset="static",
    policy={"order": "fifo", "bound": {"slots": 2}, "fill": "head_of_line", "quantum": "request", "reserve": False},
    decode={"block_length": 4, "cache": "dual", "suffix": 0, "eos": "settled"},
    execution={"head": "block", "compaction": False},
    overrides={},
    model={"name": "none"},
    device="cpu",
    dtype="float32",
    clock="wall",
    level="token",
    seed=0,
    workload={"name": "hand", "requests": 3, "digest": ""},
    versions={},
    created="2026-01-01T00:00:00+00:00",
)


def row(id, slot, block, prompt, box, steps, passes, commits, valid, *, frozen=False, ended=None, detail=None):
    width = prompt + (block + 1) * 4
    return RowRecord(
        id, slot, block, prompt, 0, width, box - width, frozen, steps, passes, commits, valid, ended, detail
    )


def by_hand() -> Trace:
    """L 4, dual cache, no compaction, static group of a (5 prompt tokens) and b (2); c waits.

    Cycle 0, box 2 × 9: a takes 3 steps (2, 1, 1), b takes 2 (3, 1) and ends with 2 valid tokens: its end token is
    the third of step 0. 3 passes: refresh 2 × 9, reuse 2 × (2 × 4). Cycle 1, box 2 × 13: b is frozen.
    """
    detail = tuple(StepRecord((5 + i,), (7,), (0.5,)) for i in range(3))
    first = (
        row("a", 0, 0, 5, 9, 3, 3, (2, 1, 1), (2, 1, 1), detail=detail),
        row("b", 1, 0, 2, 9, 2, 3, (3, 1), (2, 0), ended="eos"),
    )
    second = (
        row("a", 0, 1, 5, 13, 1, 1, (4,), (4,), ended="length"),
        row("b", 1, 0, 2, 13, 0, 1, (), (), frozen=True),
    )
    common = {"seconds": {"refresh": 0.5, "denoise": 0.25}, "batch": 2, "budget": None, "reuse_width": 4}
    cycles = (
        CycleRecord(
            index=0, start=0.0, duration=1.0, rows=first, box_width=9, cost=18, padding=3, queue_depth=1,
            refresh_passes=1, reuse_passes=2, row_passes=6, row_tokens=34, admitted=(("a", "head"), ("b", "fits")),
            refused={"slots": 1}, first_refused=("c", "slots"), **common,
        ),
        CycleRecord(
            index=1, start=1.0, duration=2.0, rows=second, box_width=13, cost=26, padding=11, queue_depth=1,
            refresh_passes=1, reuse_passes=0, row_passes=2, row_tokens=26, evicted=(("a", "length"), ("b", "eos")),
            refused={"group": 1}, first_refused=("c", "group"), **common,
        ),
    )  # fmt: skip
    requests = [RequestRecord(name, p, 8, 2, tags={"task": "t"}) for name, p in (("a", 5), ("b", 2), ("c", 3))]
    done = [
        CompletionRecord("a", "length", 2, 8, 8, 0.0, 0.0, 1.0, 3.0, 3.0, 1, 1, (1,) * 8, "aa", True),
        CompletionRecord("b", "eos", 1, 3, 2, 0.0, 0.0, 1.0, 1.0, 3.0, 0, 1, (1, 1, 9), "b", False),
    ]
    warning, end = WarningRecord("something", 1), EndRecord("interrupted", 2, 3.0)
    return Trace([RUN, *requests, cycles[0], warning, cycles[1], *done, end])


def test_waste_puts_every_row_token_in_one_category():
    """Worked out by hand from `by_hand`:

    cycle 0, refresh 2 × 9 = 18: padding 3 (row b), prompts 5 + 2, blocks 8: a 2 valid + 2 uncommitted;
    b 2 valid + 1 at its end + 1 uncommitted. Reuse 1, 8 cells: a 1 + 3, b 0 valid, 1 after the end, 3. Reuse 2:
    a 1 + 3; b has finished its block: 4 uncompacted.
    cycle 1, 2 × 13 = 26: a 4 valid, prompt and first block 9; b frozen 6, padding 7.
    """
    parts = waste(by_hand())
    assert parts == {
        "valid": 4 + 1 + 1 + 4,
        "after_eos": 1 + 1,
        "uncommitted": 2 + 1 + 3 + 3 + 3,
        "refresh": 5 + 2 + 9,
        "suffix": 0,
        "padding": 3 + 7,
        "ended": 6,
        "uncompacted": 4,
    }
    assert sum(parts.values()) == 34 + 26
    assert tuple(parts) == WASTE_CATEGORIES


def test_the_effective_compute_ratio_counts_rows_that_had_not_ended():
    """Cycle 0: 2 unended rows; cycle 1: b ended in cycle 0, so 1. Mean 1.5; against 2 slots 0.75."""
    assert effective_compute_ratio(by_hand(), baseline_slots=2) == 0.75
    assert effective_compute_ratio(Trace(), 8) == 0.0


def test_stragglers_are_counted_over_unended_rows():
    """Cycle 0: slowest 3, b took 2: one step waited. Cycle 1: only a."""
    assert straggler_wait(by_hand()) == 1


def test_the_summary_agrees_with_hand_counts():
    s = summarize(by_hand(), baseline_slots=2)
    expected = {
        "requests": 3, "finished": 2, "accuracy": 0.5, "valid_tokens": 10, "wall_s": 3.0, "cycles": 2,
        "batch_mean": 2.0, "budget": None, "cost_max": 26, "preemptions": 0, "batch_passes": 4, "row_passes": 8,
        "row_tokens": 60, "preset": "static", "effective_compute_ratio": 0.75,
    }  # fmt: skip
    assert {k: s[k] for k in expected} == expected
    assert s["tokens_per_s"] == pytest.approx(10 / 3)
    assert s["padding_fraction"] == pytest.approx(14 / 44)
    assert s["tokens_per_row_pass"] == pytest.approx((4 + 4 + 4) / 8)
    table = compare({"one": by_hand(), "two": by_hand()})
    assert list(table.columns) == ["one", "two"]
    assert table.loc["share of row-tokens: padding", "one"] == pytest.approx(10 / 60)


def test_latency_is_measured_from_arrival_to_leaving():
    frame = latency(by_hand()).set_index("id")
    assert frame.loc["b"].to_dict() == {
        "valid_tokens": 2, "queueing": 0.0, "first_block": 1.0, "service": 3.0, "end_to_end": 3.0
    }  # fmt: skip
    assert quantile([1.0, 2.0, 4.0], 0.75) == 3.0
    assert quantile([], 0.5) is None


def test_quantiles_and_goodput():
    """Both requests took 3 s from arrival to leaving, in a run of 3 s."""
    table = latency_quantiles(by_hand())
    assert table.loc["end_to_end"].tolist() == [3.0, 3.0, 3.0]
    assert list(table.columns) == ["p50", "p95", "p99"]
    assert goodput(by_hand(), 3.0) == pytest.approx(2 / 3)
    assert goodput(by_hand(), 2.9) == 0.0
    with pytest.raises(ConfigError, match="latency limit"):
        goodput(by_hand(), 0.0)


def test_every_kind_survives_both_file_formats(tmp_path):
    trace = by_hand()
    for name in ("t.jsonl", "t.parquet"):
        loaded = Trace.load(trace.save(tmp_path / name))
        assert loaded == trace
        assert not loaded.complete
    for record in trace.records:
        assert from_dict(json.loads(json.dumps(to_dict(record)))) == record


def test_dataframes_have_their_documented_columns():
    trace = by_hand()
    assert trace.cycles.seconds_refresh.tolist() == [0.5, 0.5]
    assert trace.cycles.refused.tolist() == [1, 1]
    assert trace.rows.query("id == 'a'").commits.tolist() == [4, 4]
    assert trace.requests.reason.tolist()[:2] == ["length", "eos"]
    assert trace.requests.reason.isna().tolist() == [False, False, True]
    assert trace.steps.query("id == 'b'").valid.tolist() == [2, 0]
    assert trace.steps.positions.iloc[0] == (5,)
    assert len(Trace().cycles) == len(Trace().rows) == len(Trace().steps) == 0
    assert "box_width" in Trace().cycles


def test_a_killed_run_leaves_a_readable_trace(tmp_path):
    """Cut the file at every byte of its last two lines: what is whole loads, and the warning says what is not."""
    path = by_hand().save(tmp_path / "whole.jsonl")
    text = path.read_bytes()
    lines = text.splitlines(keepends=True)
    for cut in range(len(text) - len(lines[-1]) - 40, len(text) - 1, 7):
        partial = tmp_path / "partial.jsonl"
        partial.write_bytes(text[:cut])
        if text[:cut].endswith(b"}"):
            loaded = Trace.load(partial)
        else:
            with pytest.warns(UserWarning, match=r"cut off in line \d+: loaded 2 whole cycles"):
                loaded = Trace.load(partial)
        assert loaded.records == by_hand().records[: len(loaded.records)]
        assert not loaded.complete


def test_damaged_and_foreign_files_get_one_clear_message(tmp_path):
    bad = tmp_path / "bad.jsonl"
    lines = by_hand().save(tmp_path / "good.jsonl").read_text().splitlines()

    def refuses(text, match):
        bad.write_text(text)
        with pytest.raises(TraceError, match=match):
            Trace.load(bad)

    refuses("\n".join([lines[0], "{oops", *lines[1:]]), "line 2: not a JSON object")
    refuses("\n".join([lines[0], '{"kind": "cycles"}']), "line 2: unknown record kind 'cycles'. Did you mean 'cycle'")
    refuses("\n".join([lines[0], '{"kind": "cycle"}']), "line 2: field 'rows' is missing")
    refuses("\n".join([lines[0], '{"kind": "warning", "text": ""}']), "line 2: malformed warning")
    refuses("\n".join(lines[1:]), "does not begin with a run record")
    refuses(lines[0].replace('"schema":1', '"schema":2'), "schema 2 is not supported")
    refuses("", "no whole record")
    with pytest.raises(TraceError, match="no trace file"):
        Trace.load(tmp_path / "nowhere.jsonl")
    (tmp_path / "bad.parquet").write_bytes(b"no")
    with pytest.raises(TraceError, match="not a Parquet file"):
        Trace.load(tmp_path / "bad.parquet")


def test_an_existing_file_is_not_overwritten(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("precious")
    with pytest.raises(TraceError, match="exists and would be overwritten"):
        TraceWriter(path)
    assert path.read_text() == "precious"
    with pytest.raises(TraceError, match="does not exist; create it"):
        TraceWriter(tmp_path / "no" / "t.jsonl")
    with pytest.raises(TraceError, match="is a folder"):
        TraceWriter(tmp_path)
    by_hand().save(path, force=True)
    assert Trace.load(path) == by_hand()


def test_lines_are_on_disk_as_they_are_written(tmp_path):
    writer = TraceWriter(tmp_path / "t.jsonl")
    writer.write(RUN)
    assert Trace.load(tmp_path / "t.jsonl").run == RUN
    writer.close()


def test_explain_says_what_happened_and_why():
    trace = by_hand()
    assert "admitted (head): the batch was empty" in trace.explain(0, "a")
    assert "its output is complete (eos) but it has not left" in trace.explain(0, "b")
    assert "it waits for its group; evicted at the end of the cycle (eos)" in trace.explain(1, "b")
    assert trace.explain(0, "c") == "c waits; refused: slots (2 of 2 are taken)."
    assert "refused: group" in trace.explain(1, "c")
    with pytest.raises(UnknownNameError, match="unknown request 'd'"):
        trace.explain(0, "d")
    with pytest.raises(TraceError, match="no cycle 7 in this trace; it has 2"):
        trace.explain(7, "a")


def test_explain_gives_the_budget_in_numbers():
    trace = by_hand()
    policy = dict(RUN.policy, bound={"budget": 26}, quantum="block", fill="sand")
    records = [replace(RUN, policy=policy), *trace.request_records]
    records += [replace(c, budget=26, refused={"budget": 1}) for c in trace.cycle_records]
    assert Trace(records).explain(1, "c") == "c waits; refused: budget (3 × 13 = 39 > 26)."


def test_perfetto_events_keep_the_rules_of_the_format(tmp_path):
    """Every event has a phase, a process and a name; slices of a track follow one another; counters are numbers."""
    path = by_hand().to_perfetto(tmp_path / "run.json")
    document = json.loads(path.read_text())
    events = document["traceEvents"]
    assert {e["ph"] for e in events} == {"M", "X", "C", "i"}
    assert all(isinstance(e["name"], str) and e["pid"] == 1 for e in events)
    assert all(e["ts"] >= 0 for e in events if e["ph"] != "M")
    tracks = {}
    for e in events:
        if e["ph"] == "X":
            assert e["dur"] > 0
            assert e["ts"] >= tracks.get(e["tid"], 0.0)
            tracks[e["tid"]] = e["ts"] + e["dur"]
        if e["ph"] == "C":
            assert all(isinstance(v, (int, float)) for v in e["args"].values())
        if e["ph"] == "i":
            assert e["s"] == "t"
    named = {e["tid"]: e["args"]["name"] for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    assert named == {0: "block cycles", 1: "slot 0", 2: "slot 1"}
    blocks = [e for e in events if e.get("cat") == "block"]
    assert [(e["name"], e["ts"], e["dur"]) for e in blocks] == [
        ("a B0", 0.0, 1e6),
        ("b B0", 0.0, 1e6),
        ("a B1", 1e6, 2e6),
    ]
    assert blocks[0]["args"]["commits"] == [2, 1, 1]
    assert [e["name"] for e in events if e.get("cat") == "frozen"] == ["b waits"]
    with pytest.raises(TraceError, match="exists"):
        by_hand().to_perfetto(path)
    with pytest.raises(TraceError, match="no cycles to draw"):
        Trace().to_perfetto(tmp_path / "empty.json")
