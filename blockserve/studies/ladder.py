"""The ladder: from a cached static baseline to BlockServe, one change a rung, and what each change is worth.

A single ratio between two systems mixes how work is done with when it is done. The ladder keeps them apart: a rung
either changes the *implementation* (what a row ends at, which cells go through the model) or the *schedule* (who is in
the batch), never both.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, fields
from itertools import pairwise
from statistics import fmean
from typing import Any, Literal

from blockserve.core import ConfigError, DecodeConfig
from blockserve.presets import PRESETS, Preset
from blockserve.studies.experiment import Arm, Measured, bound_of
from blockserve.studies.results import Interval, share_with_interval
from blockserve.tracing import Trace

LADDER: tuple[str, ...] = tuple(name for name in PRESETS if name != "vanilla")  # vanilla: other rule, other cache
REFERENCE, FAIR, TOP = LADDER[0], "static", LADDER[-1]
BASELINES = (REFERENCE, "static-eos", FAIR)  # the paper's; the same that stops at the end token; our implementation
SCHEDULE = ("order", "bound", "fill", "quantum")  # parts of a preset that say when work is done

Kind = Literal["reference", "implementation", "scheduling"]
Tokens = Literal["the same", "the same up to the end token", "may change"]


@dataclass(frozen=True)
class Graded:
    """``accuracy``: the share of ``answers`` that is right."""

    accuracy: float
    answers: int

    def __str__(self) -> str:
        """With its 95% interval: ``96.9% (84.3–99.4)``."""
        return share_with_interval(self.accuracy, self.answers)


@dataclass(frozen=True)
class Rung:
    """One preset and how it differs from the rung below. ``tokens``: what it promises of a request's tokens."""

    preset: str
    kind: Kind
    changes: tuple[str, ...]
    tokens: Tokens


@dataclass(frozen=True)
class Step:
    """A rung as measured: intervals over repeats; ``None`` where there is no rung below, or nothing to grade.

    ``seconds``: of a run. ``speed``: valid tokens/s. ``row_tokens``: cells that went through the model.
    ``faster``: its speed ÷ that of the rung below. ``less_work``: row-tokens of the rung below ÷ its own.
    ``same_answers``: share of the requests with the answer that they had on the rung below, first repeat.
    """

    rung: Rung
    seconds: Interval
    speed: Interval
    row_tokens: Interval
    faster: Interval | None
    less_work: Interval | None
    accuracy: Graded | None
    same_answers: float | None


@dataclass(frozen=True)
class Parts:
    """A gain, top of the ladder over its bottom, as the product of two: up to *static* the implementation changes,
    above it the schedule alone."""

    whole: Interval
    implementation: Interval
    scheduling: Interval


def rungs() -> tuple[Rung, ...]:
    """The ladder, from the bottom, as the presets have it."""
    parts = [_parts(PRESETS[name]) for name in LADDER]
    found = [Rung(REFERENCE, "reference", (), "the same")]
    for name, below, own in zip(LADDER[1:], parts, parts[1:], strict=False):
        changed = [part for part in own if own[part] != below[part]]
        kind: Kind = "scheduling" if set(changed) & set(SCHEDULE) else "implementation"
        changes = tuple(f"{part}: {below[part]} → {own[part]}" for part in changed)
        found.append(Rung(name, kind, changes, _tokens(set(changed) & {f.name for f in fields(DecodeConfig)})))
    return tuple(found)


def _tokens(changed: Set[str]) -> Tokens:
    """What another decode config does to the tokens. A committed token stays, so where a row stops decides only what
    follows its end token."""
    if not changed:
        return "the same"
    return "the same up to the end token" if changed == {"eos"} else "may change"


def arms(slots: int, token_budget: int) -> dict[str, Arm]:
    """One arm a rung: ``slots`` rows, or β where the rung is bound by it."""
    return {name: Arm.of(name, **bound_of(name, slots, token_budget)) for name in LADDER}


def climb(found: Measured) -> tuple[Step, ...]:
    """What each rung is worth. ``found``: of `ladder.arms`, or of any arms named by the presets of the ladder."""
    missing = [name for name in LADDER if name not in found.traces]
    if missing:
        raise ConfigError(f"the ladder lacks a rung: {', '.join(missing)} was not run; run every arm of ladder.arms()")
    steps, below = [], None
    for rung in rungs():
        name = rung.preset
        work = None if below is None else found.ratio(name, below, "row_tokens")
        steps.append(
            Step(
                rung=rung,
                seconds=found.mean_of(name, "wall_s"),
                speed=found.mean_of(name, "tokens_per_s"),
                row_tokens=found.mean_of(name, "row_tokens"),
                faster=None if below is None else found.ratio(below, name),
                less_work=work,
                accuracy=accuracy(found, name),
                same_answers=None if below is None else same_answers(found.traces[below], found.traces[name]),
            )
        )
        below = name
    return tuple(steps)


def gain(found: Measured) -> Parts:
    """How many times as fast the top of the ladder is as its bottom, in two parts."""
    return Parts(found.ratio(REFERENCE, TOP), found.ratio(REFERENCE, FAIR), found.ratio(FAIR, TOP))


def work_saved(found: Measured) -> Parts:
    """How many times fewer row-tokens the top needs: the same parts, and no clock in them."""
    name = "row_tokens"
    return Parts(found.ratio(TOP, REFERENCE, name), found.ratio(FAIR, REFERENCE, name), found.ratio(TOP, FAIR, name))


def verdict(ratio: Interval) -> str:
    """What a ratio says, its interval taken seriously."""
    if ratio.half is None:
        return "not known: one repeat"
    if ratio.mean - ratio.half > 1:
        return "helps"
    return "hurts" if ratio.mean + ratio.half < 1 else "not shown to help"


def accuracy(found: Measured, name: Any) -> Graded | None:
    """Share of right answers over all repeats; ``None`` where nothing is graded."""
    shares, sizes = found.values(name, "accuracy"), found.values(name, "requests")
    if None in shares:
        return None
    return Graded(sum(s * n for s, n in zip(shares, sizes, strict=True)) / sum(sizes), sum(sizes))


def same_answers(one: Trace, other: Trace) -> float | None:
    """Share of requests whose valid tokens are the same in both runs; ``None`` where no tokens are recorded."""
    here, there = _answers(one), _answers(other)
    if not any(here.values()):
        return None
    return sum(there[name] == tokens for name, tokens in here.items()) / len(here)


def blocks_written(trace: Trace) -> list[int]:
    """Blocks that each request's valid output takes: what scheduling by blocks can tell apart."""
    length = trace.run.decode["block_length"]
    return [max(1, -(-c.valid_tokens // length)) for c in trace.completion_records]


def told(ladders: Mapping[str, Measured]) -> list[str]:
    """What the ladders say, in sentences: a workload each, then where the schedule helps, then what became of the
    answers. ``ladders``: a workload's name to what `measure` found."""
    parts = {name: gain(found) for name, found in ladders.items()}
    sentences = [_told_of(name, found, parts[name]) for name, found in ladders.items()]
    helped = [name for name, own in parts.items() if verdict(own.scheduling) == "helps"]
    others = "; ".join(name for name in ladders if name not in helped)
    sentences.append(
        f"Scheduling helps in {len(helped)} of {len(ladders)} workloads; it is worth more than the implementation in "
        f"{sum(own.scheduling.mean > own.implementation.mean for own in parts.values())} of them."
        + (f" BlockServe's schedule is not shown to help in: {others}." if others else "")
    )
    changed = [text for name, found in ladders.items() for text in _changed_answers(name, climb(found))]
    if any(found.simulated for found in ladders.values()):
        return [*sentences, "Quality is not simulated: a cost model writes no answers."]
    return [*sentences, "Answers changed at: " + "; ".join(changed) + "." if changed else "No rung changed an answer."]


def _told_of(name: str, found: Measured, parts: Parts) -> str:
    best = max(climb(found)[1:], key=lambda step: step.faster.mean)
    blocks = blocks_written(found.traces[TOP])
    return (
        f"{name}: {TOP} is {parts.whole} times as fast as {REFERENCE}; implementation {parts.implementation} "
        f"({verdict(parts.implementation)}), scheduling {parts.scheduling} ({verdict(parts.scheduling)}). "
        f"Worth most: {best.rung.preset} ({best.rung.kind}), {best.faster}. "
        f"Answers take {min(blocks)} to {max(blocks)} blocks, mean {fmean(blocks):.2f}."
    )


def _changed_answers(name: str, steps: Sequence[Step]) -> list[str]:
    """Rungs on which a request has another answer than on the rung below."""
    return [
        f"{name}, {own.rung.preset} ({1 - own.same_answers:.1%} of them; accuracy {below.accuracy} → {own.accuracy})"
        for below, own in pairwise(steps)
        if own.same_answers is not None and own.same_answers < 1
    ]


def _answers(trace: Trace) -> Mapping[str, Sequence[int]]:
    return {c.id: c.output_ids[: c.valid_tokens] for c in trace.completion_records}


def _parts(preset: Preset) -> dict[str, Any]:
    """Every part of a preset by name."""
    own = {name: getattr(preset, name) for name in SCHEDULE}
    for config in (preset.decode, preset.execution):
        own |= {f.name: getattr(config, f.name) for f in fields(config)}
    return own
