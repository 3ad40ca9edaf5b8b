"""How good a model's answers are on the built-in tasks, and how that depends on the way of decoding.

Quality and work belong together: a lower threshold writes a block in fewer steps and gets more answers wrong. Both
are read from the trace of one run of the real engine, so a row here is what a user of the same settings gets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from statistics import fmean, pstdev
from typing import TYPE_CHECKING, Any

from blockserve.checkpoints import load_model
from blockserve.core import ConfigError, Suffix
from blockserve.engine import Engine
from blockserve.presets import resolve as resolve_preset
from blockserve.studies.results import share_with_interval
from blockserve.tracing import Trace
from blockserve.workload.sources import Workload
from blockserve.workload.tasks import resolve

if TYPE_CHECKING:
    from tqdm import tqdm

    from blockserve.execution.model import DiffusionModel

PRESET = "blockserve-fixed"


@dataclass(frozen=True)
class Quality:
    """Answers of one model to unseen problems of one task, under one way of decoding.

    What was run: ``task``; ``limit``: new tokens an answer may have, the family's own; ``block_length``,
    ``threshold``, ``cache``, ``suffix``: as in `blockserve.core.DecodeConfig`; ``problems`` drawn by ``seed``;
    ``device`` and ``dtype`` computed in.

    What came out, shares between 0 and 1: ``accuracy``: right final answers; ``all_steps``: answers with every step
    right (of programs, every test), ``None`` where the task's grader counts no steps; ``ended_by_eos``: answers that
    ended by an end token before the limit. ``blocks_mean``, ``blocks_max``: blocks an answer took, of the
    ``blocks_limit`` that the limit holds; ``steps_mean``, ``steps_cv``: denoise steps a block took, mean and
    coefficient of variation over all blocks of all answers; ``tokens_per_forward``: valid tokens (before the end
    token, within the limit) of all answers ÷ row passes of all forwards (a row pass is one row's part in one
    forward). Unlike `metrics.summarize`'s ``tokens_per_row_pass`` it leaves out what is committed after the end.
    """

    task: str
    limit: int
    block_length: int
    threshold: float
    cache: str
    suffix: Suffix
    problems: int
    seed: int
    device: str
    dtype: str
    accuracy: float
    all_steps: float | None
    ended_by_eos: float
    blocks_mean: float
    blocks_max: int
    blocks_limit: int
    steps_mean: float
    steps_cv: float
    tokens_per_forward: float


def evaluate(
    model: str | Path | DiffusionModel,
    tasks: str | Sequence[str] = "all",
    *,
    n: int = 200,
    seed: int = 7,
    block_lengths: int | Sequence[int] = (16,),
    caches: str | Sequence[str] = ("dual",),
    suffixes: Suffix | Sequence[Suffix] = (0,),
    thresholds: float | Sequence[float] = (0.9,),
    slots: int = 16,
    device: str | None = None,
    dtype: str | None = None,
    progress: bool = False,
) -> Iterator[Quality]:
    """Measure ``model`` on ``n`` unseen problems of each task family, at every combination of the settings.

    ``tasks`` as in `Workload.tasks`; of a setting, one value or several. Rows come as they are measured: task by task,
    then by block length, cache, suffix and threshold, the last varying fastest, each in the order given. ``slots``
    rows run at once. ``device`` and ``dtype`` are for a model given by name or folder. ``progress`` shows a bar over
    all requests on standard error.

    All options, and that every request fits the model's context, are checked before this returns: nothing runs until
    the first row is asked for. Raises `BlockServeError` subclasses.
    """
    settings = _settings(block_lengths, caches, suffixes, thresholds, slots)
    workloads = [Workload.tasks(family.name, n=n, seed=seed) for family in resolve(tasks)]
    loaded = load_model(model, device=device, dtype=dtype) if isinstance(model, (str, Path)) else model
    engines = [Engine(loaded, PRESET, **options) for options in settings]
    for engine in {engine.config.decode.block_length: engine for engine in engines}.values():
        for workload in workloads:
            engine.submit(workload)  # not to run it yet: for the check of every request
    return _rows(engines, workloads, seed, progress)


def _settings(
    block_lengths: Any, caches: Any, suffixes: Any, thresholds: Any, slots: int
) -> tuple[dict[str, Any], ...]:
    """Engine options of every combination, all of them valid."""
    given = {"block_length": block_lengths, "cache": caches, "suffix": suffixes, "threshold": thresholds}
    several = {name: _tuple(values) for name, values in given.items()}
    for name, values in several.items():
        if not values:
            raise ConfigError(f"no {name} given; give one or more")
    combinations = product(*(dict.fromkeys(values) for values in several.values()))
    settings = tuple(dict(zip(several, values, strict=True)) | {"slots": slots} for values in combinations)
    for options in settings:
        resolve_preset(PRESET, options)
    return settings


def _tuple(values: Any) -> tuple[Any, ...]:
    return tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else (values,)


def _rows(engines: Sequence[Engine], workloads: Sequence[Workload], seed: int, progress: bool) -> Iterator[Quality]:
    from tqdm.auto import tqdm

    total = len(engines) * sum(map(len, workloads))
    with tqdm(total=total, desc="eval", unit="request", disable=not progress) as bar:
        for workload, engine in product(workloads, engines):
            bar.set_postfix_str(f"{workload.name}, {_told(engine)}")
            yield quality(_run(engine, workload, bar), workload, seed)


def _told(engine: Engine) -> str:
    decode = engine.config.decode
    return f"L {decode.block_length}, {decode.cache}, suffix {decode.suffix}, threshold {decode.rule.tau:g}"


def _run(engine: Engine, workload: Workload, bar: tqdm) -> Trace:
    """Like `Engine.run`, but an interrupt is passed on: half a run is no measurement. Nothing is graded: `quality` does
    that, and a second time would run every program twice."""
    engine.submit(replace(workload, requests=tuple(replace(request, tags={}) for request in workload)))
    with closing(engine.cycles()) as cycles:
        for record in cycles:
            bar.update(len(record.evicted))
    return engine.trace


def quality(trace: Trace, workload: Workload, seed: int) -> Quality:
    """The row of a complete run of one task family's ``workload`` (drawn by ``seed``) under a threshold."""
    run, decode, done = trace.run, trace.run.decode, trace.completion_records
    grades = [workload.grade(c.id, c.text) for c in done]
    counts_steps = any(grade.steps_expected for grade in grades)
    steps = [row.steps for cycle in trace.cycle_records for row in cycle.rows if not row.frozen]
    return Quality(
        task=workload.name,
        limit=trace.request_records[0].max_new_tokens,
        block_length=decode["block_length"],
        threshold=decode["rule"]["tau"],
        cache=decode["cache"],
        suffix=decode["suffix"],
        problems=len(done),
        seed=seed,
        device=run.device,
        dtype=run.dtype,
        accuracy=fmean(grade.correct for grade in grades),
        all_steps=fmean(grade.all_steps_correct for grade in grades) if counts_steps else None,
        ended_by_eos=fmean(c.reason == "eos" for c in done),
        blocks_mean=fmean(c.blocks for c in done),
        blocks_max=max(c.blocks for c in done),
        blocks_limit=trace.request_records[0].blocks,
        steps_mean=fmean(steps),
        steps_cv=pstdev(steps) / fmean(steps),
        tokens_per_forward=sum(c.valid_tokens for c in done) / sum(c.row_passes for c in trace.cycle_records),
    )


# ------------------------------------------------------------------------------------------- the table

Column = tuple[str, Callable[[Quality], str]]

SETTINGS: tuple[Column, ...] = (
    ("problems", lambda q: str(q.problems)),
    ("seed", lambda q: str(q.seed)),
    ("dtype", lambda q: q.dtype),
    ("device", lambda q: q.device),
    ("L", lambda q: str(q.block_length)),
    ("threshold", lambda q: f"{q.threshold:g}"),
    ("cache", lambda q: q.cache),
    ("suffix", lambda q: str(q.suffix)),
)
RESULTS: tuple[Column, ...] = (
    ("final answer right (95% interval)", lambda q: share_with_interval(q.accuracy, q.problems)),
    ("every step right", lambda q: "–" if q.all_steps is None else f"{q.all_steps:.1%}"),
    ("blocks, mean (max)", lambda q: f"{q.blocks_mean:.2f} ({q.blocks_max})"),
    ("steps a block, mean (CV)", lambda q: f"{q.steps_mean:.2f} ({q.steps_cv:.2f})"),
    ("valid tokens a row pass", lambda q: f"{q.tokens_per_forward:.2f}"),
)


def markdown_table(rows: Sequence[Quality]) -> str:
    """The rows in Markdown: a line with the settings that all of them share, then a table with the others.

    This is what ``blockserve eval`` prints and what a model's card shows. ``limit (blocks)``: in tokens, and in blocks
    of L. Raises `ConfigError` for no rows.
    """
    if not rows:
        raise ConfigError("no rows to show; measure at least one setting")
    shared = [(name, cell) for name, cell in SETTINGS if len({cell(row) for row in rows}) == 1]
    differing = tuple(column for column in SETTINGS if column not in shared)
    limit = ("limit (blocks)", lambda q: f"{q.limit} ({q.blocks_limit})")
    columns = (("task", lambda q: q.task), limit, *differing, *RESULTS)
    lines = [[name for name, _ in columns], *([cell(row) for _, cell in columns] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = [" | ".join(cell.ljust(w) for cell, w in zip(line, widths, strict=True)) for line in lines]
    padded.insert(1, " | ".join("-" * w for w in widths))
    caption = "In every row: " + ", ".join(f"{name} {cell(rows[0])}" for name, cell in shared) + ".\n\n"
    return (caption if shared else "") + "\n".join(f"| {line} |" for line in padded)
