"""The paper's five workloads as lengths: packaged prompt and reference lengths, and the published numbers.

What a model writes is not what the reference holds, so output lengths are the reference lengths scaled until their
mean, clipped at the limit, is the published one.
"""

from __future__ import annotations

import csv
import json
from functools import cache
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from blockserve.core import ConfigError, check_choice, check_int
from blockserve.simulation.catalogue import CALIBRATED
from blockserve.simulation.profile import Profile, StepDistribution

BENCHMARKS = ("gsm8k", "humaneval", "mbpp", "math", "truthfulqa")
# Mean valid tokens at a limit of 256 (MATH: 512), as published: what a model writes into the room it is given.
MEANS = {
    "llada-8b": {"gsm8k": 232, "humaneval": 233, "mbpp": 149, "math": 429, "truthfulqa": 34},
    "dream-7b": {"gsm8k": 132, "humaneval": 129, "mbpp": 47, "math": 229, "truthfulqa": 10},
}

IntArray = NDArray[np.integer]


@cache
def published() -> dict[str, Any]:
    """The paper's tables and figures as numbers."""
    return json.loads((files("blockserve") / "data" / "paper_tables.json").read_text(encoding="utf-8"))


@cache
def _all_lengths() -> dict[str, tuple[IntArray, IntArray]]:
    columns: dict[str, tuple[list[int], list[int]]] = {name: ([], []) for name in BENCHMARKS}
    with (files("blockserve") / "data" / "benchmark_lengths.csv").open(encoding="utf-8") as file:
        for line in csv.DictReader(file):
            prompts, references = columns[line["benchmark"]]
            prompts.append(int(line["prompt_tokens"]))
            references.append(int(line["reference_tokens"]))
    return {name: (np.array(a), np.array(b)) for name, (a, b) in columns.items()}


def benchmark_lengths(name: str) -> tuple[IntArray, IntArray]:
    """(prompt tokens, reference answer tokens) of every problem, in the benchmark's order: int [N] each."""
    check_choice("benchmark", name, BENCHMARKS)
    return _all_lengths()[name]


def scaled_outputs(references: IntArray, mean: float, limit: int, maximum: int | None = None) -> IntArray:
    """Output lengths with the shape of ``references`` and, clipped at ``limit``, the given ``mean``: int [N] tokens.

    ``maximum``: the longest output seen. Where scaling does not come within a block of it, the longest answer is a
    runaway: it stops only at the limit, and the others are scaled to what is left of the mean.
    """
    if not 0 < mean <= limit:
        raise ConfigError(f"a mean output of {mean!r} tokens is not in (0, {limit}], the limit")
    lengths = _scaled(references, mean, limit)
    if maximum is None or lengths.max() >= min(maximum, limit) - 32:
        return lengths
    runaway = int(references.argmax())
    rest = np.delete(references, runaway)
    left = max((mean * len(references) - limit) / len(rest), 1.0)
    return np.insert(_scaled(rest, left, limit), runaway, limit)


def _scaled(references: IntArray, mean: float, limit: int) -> IntArray:
    """``min(limit, round(s · references))`` with the ``s`` that gives the mean, by bisection."""
    low, high = 0.0, limit / max(int(references.min()), 1)
    for _ in range(60):
        scale = (low + high) / 2
        if _clipped(references, scale, limit).mean() < mean:
            low = scale
        else:
            high = scale
    return _clipped(references, high, limit)


def _clipped(references: IntArray, scale: float, limit: int) -> IntArray:
    return np.clip(np.rint(scale * references), 1, limit).astype(np.int32)


def benchmark_profile(
    benchmark: str = "gsm8k",
    requests: int | None = None,
    *,
    limit: int = 256,
    block_length: int = 32,
    model: str = "llada-8b",
    mean_output: float | None = None,
    steps: StepDistribution | None = None,
    runaways: float = 0.0,
    seed: int = 0,
) -> Profile:
    """A workload with a benchmark's lengths.

    ``requests``: drawn with replacement; ``None``: the benchmark itself, in its order. ``model`` decides, unless they
    are given, ``mean_output`` [tokens] (as published, at most 0.9 of the limit) and ``steps`` (as calibrated).
    ``runaways``: share of requests that stop only at the limit.
    """
    check_choice("model", model, MEANS)
    prompts, references = benchmark_lengths(benchmark)
    mean = min(MEANS[model][benchmark], 0.9 * limit) if mean_output is None else mean_output
    outputs = scaled_outputs(references, mean, limit)
    if requests is not None:
        check_int("requests", requests, 1)
        drawn = np.random.default_rng(seed).integers(0, len(prompts), requests)
        prompts, outputs = prompts[drawn], outputs[drawn]
    return Profile.synthetic(
        prompts,
        outputs,
        limit,
        block_length=block_length,
        steps=steps or CALIBRATED[model].steps_for(block_length),
        runaways=runaways,
        seed=seed,
        name=benchmark,
    )
