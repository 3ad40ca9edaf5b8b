"""One setting of decoding changed at a time: what each is worth in quality and in work, and whether a batch matters.

The settings are those of `DecodeConfig`, its defaults the point that every other value is compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING, Any

from blockserve.core import ConfigError, DecodeConfig, Suffix, Threshold
from blockserve.studies.quality import Quality, evaluate
from blockserve.studies.results import wilson

if TYPE_CHECKING:
    from blockserve.execution.model import DiffusionModel
    from blockserve.studies.invariance import Invariance

_RULE, _DECODE = Threshold(), DecodeConfig()
DEFAULTS: Mapping[str, Any] = {
    "threshold": _RULE.tau,
    "suffix": _DECODE.suffix,
    "cache": _DECODE.cache,
    "block_length": _DECODE.block_length,
}


def one_at_a_time(
    model: DiffusionModel,
    tasks: str | Sequence[str],
    *,
    n: int,
    seed: int,
    thresholds: Sequence[float],
    suffixes: Sequence[Suffix],
    caches: Sequence[str],
    block_lengths: Sequence[int],
    **options: Any,
) -> Iterator[Quality]:
    """The defaults, then every other value of each setting with the rest as they are: a row a task each.

    ``options`` as for `evaluate`. Raises what it raises, when the value's turn comes.
    """
    values = {"thresholds": thresholds, "suffixes": suffixes, "caches": caches, "block_lengths": block_lengths}
    yield from evaluate(model, tasks, n=n, seed=seed, **options)
    for (name, own), default in zip(values.items(), DEFAULTS.values(), strict=True):
        others = [value for value in own if value != default]
        if others:
            yield from evaluate(model, tasks, n=n, seed=seed, **{name: others}, **options)


def varied(row: Quality) -> tuple[str, Any]:
    """The setting in which a row differs from the defaults, and its value; ``("defaults", "")`` for none.

    Raises `ConfigError` for a row that differs in more than one.
    """
    changed = [(name, getattr(row, name)) for name, default in DEFAULTS.items() if getattr(row, name) != default]
    if len(changed) > 1:
        raise ConfigError(f"a row changes {', '.join(name for name, _ in changed)} at once; give rows that change one")
    return changed[0] if changed else ("defaults", "")


def by_setting(rows: Sequence[Quality], name: str) -> dict[str, list[Quality]]:
    """Task → its rows along one setting, the default among them, in the order of the setting's values."""
    own = [row for row in rows if varied(row)[0] in (name, "defaults")]
    ordered = sorted(own, key=lambda row: _place(getattr(row, name)))
    return {task: [row for row in ordered if row.task == task] for task in dict.fromkeys(row.task for row in own)}


def told(rows: Sequence[Quality]) -> list[str]:
    """What the rows of one model say: for every value, tokens a forward against the default (mean of the ratios over
    tasks), and the tasks whose accuracy is shown to differ: their 95% intervals do not overlap."""
    defaults = {row.task: row for row in rows if varied(row)[0] == "defaults"}
    changes = dict.fromkeys(varied(row) for row in rows if varied(row)[0] != "defaults")
    sentences = []
    for name, value in sorted(changes, key=lambda change: (list(DEFAULTS).index(change[0]), _place(change[1]))):
        own = [row for row in rows if varied(row) == (name, value)]
        work = fmean(row.tokens_per_forward / defaults[row.task].tokens_per_forward for row in own)
        differing = [text for row in own if (text := _difference(defaults[row.task], row))]
        sentences.append(
            f"{name.replace('_', ' ')} {value} instead of {DEFAULTS[name]}: ×{work:.2f} as many tokens a forward; "
            + ("accuracy " + ", ".join(differing) if differing else "no accuracy is shown to differ")
            + "."
        )
    return sentences


def told_exactness(found: Mapping[str, Invariance]) -> list[str]:
    """How far tokens depend on the batch. ``found``: dtype → what `check_invariance` found."""
    sentences = []
    for dtype, own in found.items():
        worst = min(own.differences, key=own.agreement)
        first = min(own.differences[worst], key=lambda d: (d.block, d.step), default=None)
        text = f"{dtype}: {own.agreement(worst):.1%} of {own.requests} requests have the tokens that they have alone"
        if first is None:
            sentences.append(f"{text}, in every way of batching.")
            continue
        margin = "not by the threshold" if first.margin is None else f"{first.margin:.2g} from the threshold"
        sentences.append(
            f"{text}, at worst ({worst}); the first parts at block {first.block}, step {first.step}, {margin}."
        )
    return sentences


def _place(value: Any) -> tuple[bool, Any]:
    """Numbers by size, words after them."""
    return isinstance(value, str), value


def _difference(default: Quality, own: Quality) -> str:
    """The two accuracies where their intervals do not overlap, else nothing."""
    (low, high), (own_low, own_high) = (wilson(row.accuracy, row.problems) for row in (default, own))
    return "" if own_low <= high and low <= own_high else f"{own.task} {default.accuracy:.1%} → {own.accuracy:.1%}"
