"""The picture of one block: every commit of the trace in its place, and nothing else."""

from __future__ import annotations

import re

import pytest

import blockserve as bs
from blockserve.core import ConfigError, TraceError, UnknownNameError
from blockserve.tracing import Trace
from blockserve_viz import charts
from blockserve_viz.charts.commits import END, MASK, confidence_class, visible

TRACE = bs.sample_trace("arithmetic")
BLOCKS = [(row.id, row.block) for c in TRACE.cycle_records for row in c.rows if not row.frozen]


def cells(drawn: list[list[str]]) -> list[list[str]]:
    """Without the marks of style."""
    return [[re.sub(r"<[^>]*>", "", text) for text in line] for line in drawn]


@pytest.mark.parametrize(("request_id", "block"), BLOCKS[::7])
def test_a_cell_is_coloured_in_the_step_that_fixed_it_and_keeps_its_token(request_id: str, block: int) -> None:
    picture = charts.commits_heatmap(TRACE, request_id, block).data[0]
    steps = TRACE.steps.query("id == @request_id and block == @block")
    first = next(r for r in TRACE.request_records if r.id == request_id).prompt_tokens + 16 * block
    texts = {
        p: s for row in rows(request_id, block) for r in row.detail for p, s in zip(r.positions, r.texts, strict=True)
    }
    known: set[int] = set()
    for line, step in zip(zip(picture.z, cells(picture.text), strict=True), steps.itertuples(), strict=True):
        classes, drawn = line
        expected = dict(zip((p - first for p in step.positions), map(confidence_class, step.confidence), strict=True))
        assert {place: c for place, c in enumerate(classes) if c is not None} == expected
        known |= set(expected)
        assert [text != MASK for text in drawn] == [place in known for place in range(16)]
        assert all(drawn[place] in (visible(texts[first + place]), END) for place in known)


def rows(request_id: str, block: int) -> list:
    return [row for c in TRACE.cycle_records for row in c.rows if (row.id, row.block) == (request_id, block)]


def test_the_end_token_is_named_and_the_classes_are_the_players() -> None:
    last = {name: block for name, block in BLOCKS}
    name, block = next((c.id, last[c.id]) for c in TRACE.completion_records if c.reason == "eos")
    told = [trace.name for trace in charts.commits_heatmap(TRACE, name, block).data[1:]]
    assert told == ["below 0.5", "≥ 0.5", "≥ 0.7", "≥ 0.9", "≥ 0.99"], "the legend"
    assert END in cells(charts.commits_heatmap(TRACE, name, block).data[0].text)[-1]
    assert [confidence_class(c) for c in (0.0, 0.49, 0.5, 0.9, 0.989, 0.99, 1.0)] == [0, 0, 1, 3, 3, 4, 4]
    assert visible(" a\n<b>") == "·a⏎‹b›", "a token is no markup"


def test_what_cannot_be_drawn_is_refused_in_one_line() -> None:
    name, _ = BLOCKS[0]
    with pytest.raises(UnknownNameError, match="Did you mean"):
        charts.commits_heatmap(TRACE, name[:-1])
    with pytest.raises(ConfigError, match=r"block 9 .* never ran; blocks that did: 0 to"):
        charts.commits_heatmap(TRACE, name, 9)
    with pytest.raises(TraceError, match="trace_level='token'"):
        charts.commits_heatmap(bs.figure1(1), "1")
    cut = Trace([TRACE.run, *TRACE.request_records])
    with pytest.raises(ConfigError, match="blocks that did: none"):
        charts.commits_heatmap(cut, name)
