"""`simulate`: the real scheduler on a profile and a cost model. Schedules are computed, times are predicted.

A trace made here says so: its clock is ``virtual`` and its device begins with ``simulated``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from blockserve.clock import VirtualClock
from blockserve.core import ConfigError, InvalidRequestError, RequestShape, check_choice
from blockserve.manifest import versions
from blockserve.presets import EngineConfig, resolve
from blockserve.scheduling import Scheduler
from blockserve.session import Hooks, Session
from blockserve.simulation.catalogue import roofline
from blockserve.simulation.cost import CostModel, Roofline
from blockserve.simulation.executor import SimulatedExecutor
from blockserve.simulation.profile import Profile
from blockserve.studies.totals import SummarySession, Totals, no_collection
from blockserve.tracing import Trace
from blockserve.tracing.metrics import compare, summarize
from blockserve.tracing.records import LEVELS, RequestRecord, RunRecord

if TYPE_CHECKING:
    import pandas as pd

AnySession = TypeVar("AnySession", bound=Session)


@dataclass(frozen=True)
class SimulatedRun:
    """What `simulate` returns. ``totals``: sums over the cycles, for traces of level ``summary`` that hold none."""

    trace: Trace
    totals: Totals | None = None

    def metrics(self, baseline_slots: int = 8) -> dict[str, Any]:
        """The headline numbers, as `blockserve.tracing.metrics.summarize`."""
        values = summarize(self.trace, baseline_slots)
        return values if self.totals is None else values | self.totals.metrics(baseline_slots)

    def summary(self, baseline_slots: int = 8) -> pd.DataFrame:
        """One line a metric; with the shares of `waste` when the trace holds cycles."""
        import pandas as pd

        if self.totals is None:
            return compare({self.trace.run.preset: self.trace}, baseline_slots)
        return pd.DataFrame({self.trace.run.preset: self.metrics(baseline_slots)}, dtype=object)


def simulate(
    profile: Profile,
    preset: str = "blockserve-budget",
    cost: CostModel | None = None,
    *,
    level: str = "cycle",
    seed: int = 0,
    path: str | Path | None = None,
    force: bool = False,
    skip_invalid: bool = False,
    check: bool = False,
    **options: Any,
) -> SimulatedRun:
    """Serve ``profile`` under a preset (overridden by ``options``, as for `Engine`) in predicted time.

    ``cost``: default LLaDA-8B on an H200, as calibrated on the paper. ``level``: ``cycle``, or ``summary`` without
    cycle records, which a million requests need. ``token_budget="auto"``: what fits in 0.9 of the device's memory.
    ``path``: file for the trace. Raises `InvalidRequestError` naming the requests that can never be served, unless
    ``skip_invalid`` ends those as ``rejected``.
    """
    check_choice("trace level", level, LEVELS[:2])
    cost = cost or roofline()
    config = resolve(preset, {"block_length": profile.block_length} | options)
    if config.auto_budget:
        config = config.with_budget(_auto_budget(cost))
    kind = SummarySession if level == "summary" else Session
    with no_collection():
        facts = {"seed": seed}
        session = open_session(
            kind, profile, config, cost, level=level, manifest=facts, path=path, force=force, check=check
        )
        submit(session, profile_requests(profile), skip_invalid=skip_invalid)
        for _ in session.cycles():
            pass
    return SimulatedRun(session.trace, getattr(session, "totals", None))


def _auto_budget(cost: CostModel) -> int:
    if isinstance(cost, Roofline):
        return cost.token_budget()
    raise ConfigError(
        f"token_budget='auto' needs a device with a known memory, and {cost.name} has none; give a number"
    )


def open_session(
    kind: type[AnySession],
    profile: Profile,
    config: EngineConfig,
    cost: CostModel,
    *,
    level: str,
    context: int | None = None,
    manifest: Mapping[str, Any] | None = None,
    hooks: Hooks | None = None,
    **options: Any,
) -> AnySession:
    """A session on simulated hardware with nothing submitted yet. ``manifest``: facts of the run record that differ
    from a simulation's own; ``options``: ``path``, ``force`` and ``check`` of `Session`."""
    decode = config.decode
    scheduler = Scheduler(
        config.policy,
        decode.block_length,
        suffix=decode.suffix,
        run_to_limit=decode.eos == "ignore",
        context=context,
    )
    facts: dict[str, Any] = {
        "model": {"name": cost.name, "context": context},
        "dtype": "none",
        "seed": 0,
        "workload": {"name": profile.name, "requests": len(profile), "digest": digest(profile)},
    }
    record = RunRecord(
        preset=config.preset,
        **config.to_dict(),
        device=f"simulated: {cost.name}",
        clock=VirtualClock.name,
        level=level,
        versions=versions(),
        created="",  # runs on a virtual clock repeat byte for byte, so they carry no date
        **(facts | dict(manifest or {})),
    )
    executor = SimulatedExecutor(profile, decode, config.execution, cost)
    return kind(record, scheduler, executor, VirtualClock(), hooks=hooks, **options)


def profile_requests(profile: Profile) -> Iterable[RequestRecord]:
    """One record a request, in the profile's order."""
    columns = (profile.prompt_tokens, profile.limits, profile.canvas, profile.arrivals)
    for index, (prompt, limit, blocks, arrival) in enumerate(zip(*(c.tolist() for c in columns), strict=True)):
        yield RequestRecord(profile.id_of(index), prompt, limit, blocks, arrival)


def submit(session: Session, records: Iterable[RequestRecord], *, skip_invalid: bool) -> None:
    """Queue every request; those that can never be served raise together, or are recorded as ``rejected``."""
    rejected: list[tuple[RequestRecord, str]] = []
    for record in records:
        shape = RequestShape(record.id, record.prompt_tokens, record.max_new_tokens, record.arrival)
        try:
            session.submit(shape, record)
        except InvalidRequestError as error:
            rejected.append((record, str(error)))
    if rejected and not skip_invalid:
        shown = [message for _, message in rejected[:10]]
        more = f"\n  … and {len(rejected) - 10} more" if len(rejected) > 10 else ""
        head = (
            shown[0] if len(rejected) == 1 else f"{len(rejected)} requests cannot be served:\n  " + "\n  ".join(shown)
        )
        raise InvalidRequestError(head + more)
    for record, message in rejected:
        session.reject(record, message)


def digest(profile: Profile) -> str:
    """A short fingerprint of what the requests do."""
    found = hashlib.sha256(str(profile.block_length).encode())
    for column in (profile.prompt_tokens, profile.limits, profile.ends, profile.valid_tokens, profile.steps):
        found.update(np.ascontiguousarray(column).tobytes())
    return found.hexdigest()[:16]
