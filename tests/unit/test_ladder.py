"""The ladder: each rung changes one kind of thing, and its worth is worked out from the runs again."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from blockserve.core import ConfigError
from blockserve.presets import PRESETS
from blockserve.studies import ladder
from blockserve.studies.experiment import Measured, measure, open_benches, safe_budget
from blockserve.studies.results import Interval, interval
from blockserve.tracing import Trace
from blockserve.tracing.records import CompletionRecord

NAMES = {
    "checkpoints": ["tiny-llada"],
    "tasks": ["arithmetic", "facts"],
    "models": ["dream-7b"],
    "benchmarks": ["mbpp"],
}


@pytest.fixture(scope="module")
def bench():
    return open_benches("simulated", **NAMES, n=24)["dream-7b", "mbpp"]


@pytest.fixture(scope="module")
def found(bench) -> Measured:
    return measure(bench, ladder.arms(4, safe_budget(bench, 4, repeats=3, seed=0)), repeats=3)


def test_a_rung_changes_the_implementation_or_the_schedule_never_both():
    rungs = ladder.rungs()
    assert [rung.preset for rung in rungs] == [name for name in PRESETS if name != "vanilla"]
    kinds = ["reference"] + ["implementation"] * 4 + ["scheduling"] * 3
    assert [rung.kind for rung in rungs] == kinds
    for rung in rungs[1:]:
        scheduled = [change.split(":")[0] in ladder.SCHEDULE for change in rung.changes]
        assert scheduled and set(scheduled) == {rung.kind == "scheduling"}
    assert rungs[5].changes == ("quantum: request → block",)
    assert rungs[-1].changes == ("bound: slots → budget",)


def test_only_suffix_may_change_an_answer_and_eos_what_follows_it():
    said = {rung.preset: rung.tokens for rung in ladder.rungs() if rung.tokens != "the same"}
    assert said == {"static-eos": "the same up to the end token", "static-no-suffix": "may change"}


def test_every_step_compares_with_the_rung_below(found):
    steps = ladder.climb(found)
    assert steps[0].faster is None and steps[0].less_work is None
    for below, own in pairwise(steps):
        a, b = found.repeats[below.rung.preset], found.repeats[own.rung.preset]
        assert own.faster == interval([y["tokens_per_s"] / x["tokens_per_s"] for x, y in zip(a, b, strict=True)])
        assert own.less_work == interval([x["row_tokens"] / y["row_tokens"] for x, y in zip(a, b, strict=True)])
        assert own.seconds == interval([y["wall_s"] for y in b])
    assert all(step.accuracy is None and step.same_answers is None for step in steps), "nothing is graded"
    assert steps[3].less_work == Interval(1.0, 0.0), "the head saves no row-tokens"


def test_the_two_parts_multiply_to_the_whole(found):
    once = Measured(found.traces, {name: own[:1] for name, own in found.repeats.items()}, True)
    for parts in (ladder.gain(once), ladder.work_saved(once)):
        assert parts.whole.mean == pytest.approx(parts.implementation.mean * parts.scheduling.mean)
    speed = {name: own[0]["tokens_per_s"] for name, own in found.repeats.items()}
    assert ladder.gain(once).scheduling.mean == speed["blockserve-budget"] / speed["static"]
    work = {name: own[0]["row_tokens"] for name, own in found.repeats.items()}
    assert ladder.work_saved(once).implementation.mean == work["fast-dllm-static"] / work["static"]


def test_a_missing_rung_is_named(found):
    short = replace(found, traces={name: t for name, t in found.traces.items() if name != "block-fifo"})
    with pytest.raises(ConfigError, match="lacks a rung: block-fifo was not run"):
        ladder.climb(short)


@pytest.mark.parametrize(
    ("ratio", "said"),
    [
        (Interval(1.2, 0.1), "helps"),
        (Interval(0.8, 0.1), "hurts"),
        (Interval(1.05, 0.1), "not shown to help"),
        (Interval(1.0, 0.0), "not shown to help"),
        (Interval(2.0, None), "not known: one repeat"),
    ],
)
def test_a_verdict_takes_the_interval_seriously(ratio, said):
    assert ladder.verdict(ratio) == said


def test_answers_are_the_same_where_their_valid_tokens_are():
    def trace(*outputs):
        return Trace(
            CompletionRecord(str(i), "eos", 1, len(ids), valid, output_ids=ids)
            for i, (ids, valid) in enumerate(outputs)
        )

    one = trace(((1, 2, 3), 2), ((4, 5), 1))
    assert ladder.same_answers(one, trace(((1, 2, 9, 9), 2), ((4,), 1))) == 1.0
    assert ladder.same_answers(one, trace(((1, 7, 3), 2), ((4, 5), 1))) == 0.5
    assert ladder.same_answers(one, trace(((1, 2, 3), 3), ((4, 5), 1))) == 0.5
    assert ladder.same_answers(trace(((), 2)), trace(((), 2))) is None


def test_accuracy_is_over_the_answers_of_all_repeats():
    numbers = [{"accuracy": 1.0, "requests": 30}, {"accuracy": 0.5, "requests": 10}]
    graded = ladder.accuracy(Measured({}, {"a": numbers}, False), "a")
    assert graded == ladder.Graded(35 / 40, 40)
    assert str(graded) == "87.5% (73.9–94.5)", "Wilson's interval"
    assert ladder.accuracy(Measured({}, {"a": [{"accuracy": None, "requests": 3}]}, True), "a") is None


def test_the_sentences_say_where_the_schedule_is_not_shown_to_help(found):
    flat = {name: [{**own, "tokens_per_s": 1.0} for own in runs] for name, runs in found.repeats.items()}
    told = ladder.told({"a": found, "b": replace(found, repeats=flat)})
    assert len(told) == 4 and told[0].startswith(f"a: blockserve-budget is {ladder.gain(found).whole} times as fast")
    assert "scheduling 1.00 ± 0.00 (not shown to help)" in told[1]
    helped = ladder.verdict(ladder.gain(found).scheduling) == "helps"
    assert told[2].startswith(f"Scheduling helps in {int(helped)} of 2 workloads")
    assert told[2].endswith("b.") and told[3].startswith("Quality is not simulated")


def test_an_empty_list_is_refused_by_name():
    with pytest.raises(ConfigError, match="benchmarks is empty; engine='simulated' needs at least one"):
        open_benches("simulated", **(NAMES | {"benchmarks": []}), n=2)
    with pytest.raises(ConfigError, match="tasks is empty; engine='real'"):
        open_benches("real", **(NAMES | {"tasks": []}), n=2)


def test_a_ratio_to_nothing_is_refused(found):
    none = {name: [{**own, "tokens_per_s": 0.0} for own in runs] for name, runs in found.repeats.items()}
    with pytest.raises(ConfigError, match="tokens_per_s of static is 0 in a repeat"):
        replace(found, repeats=none).ratio("static", "block-fifo")
