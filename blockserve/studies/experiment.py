"""What the experiment notebooks share: a bench to run arms on, real or simulated.

On the *real* bench a model runs and seconds are measured; on the *simulated* one the same scheduler runs on a cost
model and seconds are predicted. A notebook asks for arms and cannot tell which, save by `Bench.simulated`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from blockserve.core import ConfigError, DecodeConfig, check_choice, check_int
from blockserve.geometry import largest_width, num_blocks
from blockserve.presets import PRESETS
from blockserve.simulation.benchmarks import benchmark_profile
from blockserve.simulation.catalogue import CALIBRATED, roofline
from blockserve.simulation.profile import Profile
from blockserve.studies.results import Interval, interval
from blockserve.studies.simulate import simulate
from blockserve.tracing import Trace
from blockserve.tracing.metrics import summarize
from blockserve.workload.arrivals import Poisson
from blockserve.workload.lengths import Lengths
from blockserve.workload.sources import Workload
from blockserve.workload.tasks import resolve

if TYPE_CHECKING:
    import pandas as pd

    from blockserve.execution.model import DiffusionModel

ENGINES = ("real", "simulated")
UNBROKEN = "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Arm:
    """A way to serve: a preset and its options, as for `blockserve.engine.Engine`; ``rate``: requests/s of Poisson
    arrivals, ``None`` for all at once."""

    preset: str
    options: Mapping[str, Any]
    rate: float | None = None

    @classmethod
    def of(cls, preset: str, rate: float | None = None, **options: Any) -> Arm:
        return cls(preset, options, rate)


def bound_of(preset: str, slots: int, token_budget: int) -> dict[str, int]:
    """The option that a preset is bound by: its slots, or β."""
    check_choice("preset", preset, PRESETS)
    return {"token_budget": token_budget} if PRESETS[preset].bound == "budget" else {"slots": slots}


@dataclass(frozen=True)
class RealBench:
    """A model that runs: seconds are measured. ``limit``: new tokens at most, ``None`` for each task's own."""

    model: DiffusionModel
    tasks: str
    n: int
    limit: int | None = None
    simulated = False

    def run(self, arm: Arm, seed: int) -> Trace:
        """The requests drawn by ``seed`` under ``arm``; with arrivals, waiting for one takes no time."""
        from blockserve.engine import Engine

        workload = self.workload(seed)
        if arm.rate is not None:
            workload = workload.arriving(Poisson(arm.rate), seed)
        clock = "wall" if arm.rate is None else "virtual"
        return Engine(self.model, arm.preset, seed=seed, clock=clock, **arm.options).run(workload).trace

    def workload(self, seed: int) -> Workload:
        return Workload.tasks(self.tasks, n=self.n, seed=seed, max_new_tokens=self.limit)

    def widest(self, seed: int) -> int:
        """p + K·L of the widest request drawn by ``seed``, at the default block length, in tokens."""
        length, encode = DecodeConfig().block_length, self.model.tokenizer.encode
        return max(
            largest_width(len(encode(r.prompt)), num_blocks(r.max_new_tokens, length), length)
            for r in self.workload(seed)
        )


@dataclass(frozen=True)
class SimulatedBench:
    """LLaDA-8B or Dream-7B on an H200, as calibrated on the paper, with a benchmark's lengths: seconds are predicted.

    ``lengths``: a traced workload instead of ``n`` requests of the benchmark; a rate then scales its own gaps.
    """

    model: str
    benchmark: str
    n: int
    limit: int
    lengths: Lengths | None = None
    simulated = True

    def run(self, arm: Arm, seed: int) -> Trace:
        """The requests drawn by ``seed`` under ``arm``."""
        profile = self.profile(seed, arm.options.get("block_length", 32))
        if arm.rate is not None:
            profile = replace(profile, arrivals=self._arrivals(arm.rate, seed))
        return simulate(profile, arm.preset, roofline(self.model), seed=seed, **arm.options).trace

    def profile(self, seed: int, block_length: int = 32) -> Profile:
        """All requests at once, in blocks of this length."""
        if self.lengths is None:
            return benchmark_profile(
                self.benchmark, self.n, limit=self.limit, block_length=block_length, model=self.model, seed=seed
            )
        columns = self.lengths.prompt_tokens, self.lengths.output_tokens
        steps = CALIBRATED[self.model].steps_for(block_length)
        return Profile.synthetic(
            *columns, self.limit, block_length=block_length, steps=steps, seed=seed, name=self.lengths.name
        )

    def widest(self, seed: int) -> int:
        """p + K·L of the widest request drawn by ``seed``, at the default block length, in tokens."""
        profile = self.profile(seed)
        length = profile.block_length
        return largest_width(int(profile.prompt_tokens.max()), num_blocks(self.limit, length), length)

    def _arrivals(self, rate: float, seed: int) -> Any:
        return Poisson(rate).times(self.n, seed) if self.lengths is None else self.lengths.at_rate(rate).arrival


Bench = RealBench | SimulatedBench


def open_bench(
    engine: str,
    *,
    real: tuple[str, str],
    simulated: tuple[str, str],
    n: int,
    limit: int | None = None,
    device: str | None = None,
    lengths: Lengths | None = None,
) -> Bench:
    """The bench that ``engine`` names. ``real``: (model, task families); ``simulated``: (model shape, benchmark);
    ``n`` requests of at most ``limit`` new tokens (default: each task's own, or 256 in simulation); ``device``: of the
    model. Raises `ConfigError` for a length trace on the real bench."""
    check_choice("engine", engine, ENGINES)
    check_int("n", n, 1)
    if engine == "simulated":
        number = n if lengths is None else len(lengths)
        return SimulatedBench(*simulated, number, 256 if limit is None else limit, lengths)
    if lengths is not None:
        raise ConfigError("engine='real' cannot run a length trace: the text behind it is unknown; use 'simulated'")
    from blockserve.checkpoints import load_model

    return RealBench(load_model(real[0], device=device), real[1], n, limit)


def open_benches(
    engine: str,
    *,
    checkpoints: Sequence[str],
    tasks: Sequence[str],
    models: Sequence[str],
    benchmarks: Sequence[str],
    n: int,
    device: str | None = None,
) -> dict[tuple[str, str], Bench]:
    """(model, workload) → bench: every checkpoint with every task family, or every model shape with every benchmark.

    Each has the limit that its answers are made for: the family's own; 256 tokens, MATH 512, as in the paper.
    """
    check_choice("engine", engine, ENGINES)
    check_int("n", n, 1)
    named = {
        "real": {"checkpoints": checkpoints, "tasks": tasks},
        "simulated": {"models": models, "benchmarks": benchmarks},
    }
    for name, values in named[engine].items():
        if not values:
            raise ConfigError(f"{name} is empty; engine={engine!r} needs at least one")
    if engine == "simulated":
        limits = {benchmark: 512 if benchmark == "math" else 256 for benchmark in benchmarks}
        return {(m, b): SimulatedBench(m, b, n, limit) for m in models for b, limit in limits.items()}
    from blockserve.checkpoints import load_model

    families = resolve(tasks)
    loaded = {name: load_model(name, device=device) for name in checkpoints}
    return {(name, f.name): RealBench(model, f.name, n) for name, model in loaded.items() for f in families}


def safe_budget(bench: Bench, slots: int, *, repeats: int, seed: int) -> int:
    """β of the memory in which ``slots`` rows are safe, whoever sits in them, in every repeat: slots × (p + K·L) of
    the widest request, in tokens."""
    check_int("slots", slots, 1)
    return slots * max(bench.widest(seed + repeat) for repeat in range(repeats))


def refuse_engine(engine: str, only: str, why: str) -> None:
    """Raise in one line if ``engine`` is not the ``only`` one that means something here."""
    check_choice("engine", engine, ENGINES)
    if engine != only:
        raise ConfigError(f"engine={engine!r} means nothing here: {why}; use engine={only!r}")


@dataclass(frozen=True)
class Measured:
    """What `measure` found. ``traces``: of the first seed; ``repeats``: the numbers kept of every repeat."""

    traces: Mapping[Any, Trace]
    repeats: Mapping[Any, Sequence[Mapping[str, Any]]]
    simulated: bool

    def values(self, key: Hashable, name: str) -> list[Any]:
        """One of the numbers (by default a key of `summarize`) of every repeat."""
        return [numbers[name] for numbers in self.repeats[key]]

    def mean_of(self, key: Hashable, name: str) -> Interval:
        """Mean and interval of a number."""
        return interval(self.values(key, name))

    def ratio(self, reference: Hashable, key: Hashable, name: str = "tokens_per_s") -> Interval:
        """How many times as fast as ``reference``, or the ratio of another number: repeat by repeat, for both
        saw the same requests and machine."""
        below, above = self.values(reference, name), self.values(key, name)
        if not all(below):
            raise ConfigError(f"{name} of {label(reference)} is 0 in a repeat: no ratio to it; run more requests")
        return interval([b / a for a, b in zip(below, above, strict=True)])

    @cached_property
    def summaries(self) -> dict[Any, Mapping[str, Any]]:
        """Numbers of the first seed's runs."""
        return {key: numbers[0] for key, numbers in self.repeats.items()}

    def work(self, key: Hashable) -> int:
        """Row-tokens of the first seed's run."""
        return self.summaries[key]["row_tokens"]


def rounds(bench: Bench, arms: Mapping[Any, Arm], *, repeats: int, seed: int) -> Iterator[dict[Any, Trace]]:
    """Run every arm in turn, ``repeats`` times with seeds ``seed``, ``seed + 1``, …: other requests each time. One
    round is the runs of one repeat, by the arm's key.

    Arms alternate within a round, so that a machine that slows down slows them all; one short round before warms up.
    """
    check_int("repeats", repeats, 1)
    if not bench.simulated:
        small = replace(bench, n=min(2, bench.n))
        for arm in arms.values():
            small.run(arm, seed)
    for repeat in range(repeats):
        yield {key: bench.run(arm, seed + repeat) for key, arm in arms.items()}


def measure(
    bench: Bench,
    arms: Mapping[Any, Arm],
    *,
    repeats: int = 3,
    seed: int = 0,
    numbers: Callable[[Trace], Mapping[str, Any]] = summarize,
) -> Measured:
    """The numbers of every arm in `rounds`; only the first round's traces are kept.

    ``numbers``: what to keep of a run; the headline numbers by default.
    """
    traces: dict[Any, Trace] = {}
    found: dict[Any, list[Mapping[str, Any]]] = {key: [] for key in arms}
    for runs in rounds(bench, arms, repeats=repeats, seed=seed):
        traces = traces or runs
        for key, trace in runs.items():
            found[key].append(numbers(trace))
    return Measured(traces, found, bench.simulated)


def label(key: Any) -> str:
    """A key as text: ``static 8`` for ``("static", 8)``."""
    return " ".join(map(str, key)) if isinstance(key, tuple) else str(key)


def closing_table(rows: Mapping[Any, Mapping[str, Any]], simulated: bool) -> pd.DataFrame:
    """One line an arm, and what its seconds are: measured or simulated. A number and its interval stay on one line."""
    import pandas as pd

    times = "simulated" if simulated else "measured"
    table = pd.DataFrame({label(key): {**row, "times": times} for key, row in rows.items()}, dtype=object).T
    return table.map(lambda cell: cell.replace(" ± ", UNBROKEN) if isinstance(cell, str) else cell)


def grouped(traces: Mapping[tuple[Any, str], Trace]) -> dict[Any, dict[str, Trace]]:
    """``{(size, preset): trace}`` as the charts of many runs want it: size → preset → trace."""
    found: dict[Any, dict[str, Trace]] = {}
    for (varied, name), trace in traces.items():
        found.setdefault(varied, {})[name] = trace
    return found
