"""From a benchmark's rows to requests: which rows are the test, where exemplars come from, which a prompt shows."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from blockserve.core import ConfigError, Request, check_choice, check_int
from blockserve.workload.benchmarks.catalogue import BENCHMARKS, Benchmark, Item
from blockserve.workload.benchmarks.rows import Row, hub_rows, read_rows
from blockserve.workload.sandbox import AVAILABLE


def benchmark_requests(
    name: str,
    path: str | Path | None = None,
    *,
    shots: int | None = None,
    exemplars: str | Path | None = None,
    n: int | None = None,
    seed: int = 0,
    max_new_tokens: int | None = None,
) -> tuple[Request, ...]:
    """The first ``n`` problems (all, if ``None``) as requests; see `Workload.benchmark`."""
    check_choice("benchmark", name, BENCHMARKS)
    benchmark = BENCHMARKS[name]
    shots = benchmark.shots if shots is None else shots
    check_int("shots", shots, 0)
    check_int("seed", seed, 0)
    if n is not None:
        check_int("n", n, 1)
    rows = _split(benchmark, benchmark.hub.test) if path is None else read_rows(path)
    pool = [benchmark.read(row) for row in _pool(benchmark, path, exemplars, rows, shots)] if shots else []
    limit = benchmark.max_new_tokens if max_new_tokens is None else max_new_tokens
    if benchmark.runs_code and not AVAILABLE:
        warnings.warn(f"{name} is not graded here: running programs needs POSIX limits (Linux, macOS)", stacklevel=3)
    test = _numbered(rows, benchmark.test_ids) or rows
    return tuple(_request(benchmark, row, i, pool, shots, seed, limit) for i, row in enumerate(test[:n]))


def _request(
    benchmark: Benchmark, row: Row, index: int, pool: Sequence[Item], shots: int, seed: int, limit: int
) -> Request:
    item, template = benchmark.read(row), benchmark.template
    rng = np.random.default_rng([seed, index, *benchmark.name.encode()])  # the row's own, whatever else is asked for
    own_seed = int(rng.integers(2**32))
    shown = [template.exemplar(pool[i]) for i in _draw(rng, pool, item, shots, row.where)]
    tags = {"task": benchmark.name, "reference": item.reference}
    if AVAILABLE or not benchmark.runs_code:
        tags["grading"] = dict(item.grading)
    return Request(
        id=_id(benchmark.name, row, index),
        prompt="".join(shown or [template.hint]) + template.query(item),
        max_new_tokens=limit,
        seed=own_seed,
        stop=template.stop,
        tags=tags,
    )


def _draw(rng: np.random.Generator, pool: Sequence[Item], item: Item, shots: int, where: str) -> list[int]:
    """Places of ``shots`` different exemplars, never the problem itself."""
    if not shots:
        return []
    order = rng.permutation(len(pool)).tolist()
    drawn = [i for i in order if pool[i].question != item.question][:shots]
    if len(drawn) < shots:
        raise ConfigError(
            f"{shots} shots need {shots} exemplars besides the problem itself, there are {len(drawn)} for {where}; "
            "give a larger file of exemplars or fewer shots"
        )
    return drawn


def _id(name: str, row: Row, index: int) -> str:
    """The file's own id where it has one, so that results can be put side by side with other people's."""
    value = row.get("id", "task_id", "unique_id") if row.has("id", "task_id", "unique_id") else index
    return value if isinstance(value, str) else f"{name}/{value}"


def _split(benchmark: Benchmark, split: str) -> tuple[Row, ...]:
    return hub_rows(benchmark.name, benchmark.hub.dataset, benchmark.hub.config, split)


def _pool(
    benchmark: Benchmark, path: str | Path | None, exemplars: str | Path | None, rows: tuple[Row, ...], shots: int
) -> tuple[Row, ...]:
    """Rows to draw exemplars from: the given file, the rows of the benchmark's own file that are kept for it, the
    training file that lies beside a test file, or the training split by ``datasets`` when the test came from there."""
    if exemplars is not None:
        given = read_rows(exemplars)
        return _numbered(given, benchmark.exemplar_ids) or given
    if kept := _numbered(rows, benchmark.exemplar_ids):
        return kept
    if path is None:
        return _split(benchmark, benchmark.hub.exemplars)
    if beside := _training_file(Path(path)):
        return read_rows(beside)
    raise ConfigError(
        f"{benchmark.name} with {shots} shots needs exemplars, and there is no one training file beside {path}; "
        "give a file of them in the same form, or 0 shots"
    )


def _numbered(rows: tuple[Row, ...], ids: range) -> tuple[Row, ...]:
    """Rows whose ``task_id`` (or the number at the end of whose ``id``) is in ``ids``."""
    if not ids:
        return ()
    return tuple(row for row in rows if row.has("task_id", "id") and _number(row.get("task_id", "id")) in ids)


def _number(value: object) -> int:
    tail = str(value).rpartition("/")[2]
    return int(tail) if tail.isdecimal() else -1


def _training_file(path: Path) -> Path | None:
    """``gsm8k_train_2000.jsonl`` beside ``gsm8k_test.jsonl``, ``train`` beside ``test``; ``None`` unless it is one."""
    head, test, _ = path.name.rpartition("test")
    found = list(path.parent.glob(f"{head}train*{''.join(path.suffixes)}")) if test else []
    return found[0] if len(found) == 1 else None
