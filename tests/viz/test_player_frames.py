"""Trace → bytes → frames: nothing is lost, and the payload stays small."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockserve.core import TraceError
from blockserve.tracing.trace import Trace
from blockserve_viz.decode import Frames
from blockserve_viz.frames import LIMIT, encode
from blockserve_viz.packing import pack, unpack
from hand_traces import HandTrace, Spec, figure1, long_encoded, run_record, simulate

LENGTHS = st.integers(1, 6)


@st.composite
def hand_traces(draw: st.DrawFn) -> HandTrace:
    """Any trace of the hand-made batcher: arrivals, preemptions, suffixes, both quanta, ids of any script."""
    count = draw(st.integers(1, 9))
    ids = draw(st.lists(st.text(min_size=1, max_size=8), min_size=count, max_size=count, unique=True))
    specs = []
    for name in ids:
        blocks = draw(st.integers(1, 5))
        prompt, needs = draw(st.integers(1, 300)), draw(st.integers(1, blocks))
        specs.append(Spec(name, prompt, blocks, needs, draw(st.sampled_from([0.0, 0.0, 1.5, 4.0, 30.0]))))
    return simulate(
        specs,
        length=draw(LENGTHS),
        budget=draw(st.sampled_from([10**9, 500, 2000])),
        suffix=draw(st.sampled_from([0, 1, "full"])),
        order=draw(st.sampled_from(["longest_first", "shortest_first", "fifo"])),
        quantum=draw(st.sampled_from(["block", "request"])),
        ignore=draw(st.booleans()),
        preempt_at=draw(st.lists(st.integers(1, 8), max_size=4)),
        seed=draw(st.integers(0, 99)),
    )


@settings(max_examples=120, deadline=None)
@given(hand_traces())
def test_frames_hold_every_row_of_the_trace(trace: HandTrace) -> None:
    frames = Frames(encode(trace))
    assert len(frames) == len(trace.cycle_records)
    for cycle, frame in zip(trace.cycle_records, frames, strict=True):
        rows = sorted(cycle.rows, key=lambda r: r.slot)
        assert [(r.id, r.slot, r.block, r.prompt, r.suffix, r.width, r.padding) for r in frame.rows] == [
            (r.id, r.slot, r.block, r.prompt_tokens, r.suffix_blocks, r.width, r.offset) for r in rows
        ]
        assert [(r.frozen, r.steps, r.commits, r.ended) for r in frame.rows] == [
            (r.frozen, r.steps, r.commits, r.ended) for r in rows
        ]
        assert (frame.width, frame.cost, frame.budget) == (cycle.box_width, cycle.cost, cycle.budget)
        assert {r.id: r.why for r in frame.rows if r.entered} == dict(cycle.admitted)
        assert [r.past for r in frame.rows] == [past(trace, cycle.index, r.id) for r in frame.rows]


def past(trace: HandTrace, cycle: int, request_id: str) -> int:
    """Blocks that the row worked on, up to ``cycle``, after its output was complete; 0 while it is frozen."""
    rows = {c.index: r for c in trace.cycle_records for r in c.rows if r.id == request_id}
    ended = next((i for i, r in rows.items() if r.ended), cycle)
    return 0 if rows[cycle].frozen else sum(ended < i <= cycle for i in rows)


@settings(max_examples=120, deadline=None)
@given(hand_traces())
def test_frames_hold_the_boundary_and_the_queue(trace: HandTrace) -> None:
    frames, cycles = Frames(encode(trace)), trace.cycle_records
    for index, (cycle, frame) in enumerate(zip(cycles, frames, strict=True)):
        following = cycles[index + 1] if index + 1 < len(cycles) else None
        left = dict(cycle.evicted) | ({i: "preempted" for i in following.preempted} if following else {})
        assert {r.id: r.leaves for r in frame.rows if r.leaves} == left
        after = {r.id: r for r in following.rows if r.id not in dict(following.admitted)} if following else {}
        before = {r.slot for r in cycles[index - 1].rows} if index else set()
        for row in frame.rows:
            assert row.entered in (None, "refill" if row.slot in before else "expand")
            same = after.get(row.id)
            assert row.grows == (same is not None and same.width > row.width)
            assert row.reclaimed == (max(0, row.padding - same.offset) if same else 0)
        assert [w.id for w in frame.queue] == trace.queues[index]
        assert frame.waiting == cycle.queue_depth
        assert {w.id for w in frame.queue if w.enters} <= ({i for i, _ in following.admitted} if following else set())


def test_figure_1_of_the_paper() -> None:
    first = Frames(encode(figure1(1)))
    assert [f.cost for f in first] == [84, 96, 108, 14, 18]
    assert [(r.id, r.leaves) for r in first[1].rows] == [("1", None), ("2", None), ("3", "eos")]
    assert [(r.id, r.block, r.entered) for r in first[2].rows] == [("1", 2, None), ("2", 2, None), ("4", 0, "refill")]
    second = Frames(encode(figure1(2)))
    assert [r.reclaimed for r in second[0].rows] == [0, 20, 20] and second[0].edge == 24
    assert {r.id: r.entered for r in second[1].rows} == {"4": "refill", "2": None, "3": None, "5": "expand"}


def test_columns_are_aligned_narrow_and_read_back() -> None:
    columns = {"a": np.arange(5), "b": np.full(1000, 7), "c": np.array([-1, 70000]), "d": np.array([0.5, 2.0])}
    encoded = pack(columns, {})
    assert [e["dtype"] for e in encoded.spec] == ["u1", "u1", "i4", "f8"]
    assert all(e["offset"] % 8 == 0 for e in encoded.spec) and len(encoded.data) == 8 + 16  # a and b take nothing
    for name, values in unpack(encoded).items():
        assert values.tolist() == columns[name].tolist()


@pytest.mark.parametrize("stay", [25, 3])
def test_a_hundred_thousand_cycles_of_64_rows_stay_below_the_limit(stay: int) -> None:
    encoded = long_encoded(stay)
    assert len(encoded.data) <= LIMIT


def test_detail_is_dropped_when_it_does_not_fit() -> None:
    trace = figure1(1)
    size = len(encode(trace).data)
    without_commits = encode(trace, limit=size - 1)
    assert [r.commits for r in Frames(without_commits)[0].rows] == [None] * 3
    assert Frames(without_commits)[0].rows[0].steps == trace.cycle_records[0].rows[0].steps
    assert Frames(encode(trace, limit=0))[0].rows[0].steps is None


@pytest.mark.parametrize("records", [[], [run_record(4)]])
def test_a_trace_without_cycles(records: Sequence[object]) -> None:
    assert len(Frames(encode(Trace(records)))) == 0


def test_a_truncated_trace_without_its_run_and_requests() -> None:
    whole = figure1(1)
    rows_only = Trace(whole.cycle_records[:3])
    frames = Frames(encode(rows_only))
    assert frames.meta["status"] == "truncated" and frames.meta["block_length"] == 4
    assert [f.cost for f in frames] == [84, 96, 108]


def test_requests_that_never_ran_wait_and_leave() -> None:
    from blockserve.tracing.records import CompletionRecord, RequestRecord

    whole = figure1(1)
    extra = [RequestRecord("cut", 5, 4, 1), RequestRecord("no", 9, 4, 1)]
    ends = [CompletionRecord("cut", "cancelled", 0, 0, 0, evicted=2.5), CompletionRecord("no", "rejected", 0, 0, 0)]
    trace = Trace([whole.run, *whole.request_records, *extra, *whole.cycle_records, *ends])
    queues = [[w.id for w in f.queue] for f in Frames(encode(trace))]
    assert queues == [["4", "cut"], ["4", "cut"], ["cut"], [], []]


def test_a_row_whose_width_is_not_eq_1_is_refused() -> None:
    from dataclasses import replace

    whole = figure1(1)
    cycle = whole.cycle_records[1]
    bad = replace(cycle, rows=(replace(cycle.rows[0], width=31), *cycle.rows[1:]))
    with pytest.raises(TraceError, match=r"cycle 1, request '1': block 1 and width 31 .* width 32 follow"):
        encode(Trace([whole.run, *whole.request_records, whole.cycle_records[0], bad]))
