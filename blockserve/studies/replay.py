"""`replay`: what a recorded run would have looked like under another policy, without running the model.

At a fixed `DecodeConfig` a request's tokens do not depend on its company (README, exactness), so the recorded blocks,
steps and commits are those of any other schedule. With every request present from the start the schedule follows
from them alone and is exact; with arrivals in time it also follows from the predicted times.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from blockserve.core import (
    Completion,
    ConfigError,
    DecodeConfig,
    ExecConfig,
    commit_rule_from_dict,
    from_mapping,
)
from blockserve.presets import RULE_OPTIONS, EngineConfig, resolve
from blockserve.scheduling import SchedulingPolicy
from blockserve.session import Hooks, Session
from blockserve.simulation.cost import CostModel
from blockserve.simulation.fitting import fit_cost
from blockserve.simulation.profile import Profile
from blockserve.simulation.recorded import CUT_SHORT
from blockserve.studies.simulate import open_session, submit
from blockserve.tracing import Trace
from blockserve.tracing.records import CompletionRecord, RequestRecord


class ReplaySession(Session):
    """A session that can also end requests from outside, as they ended in the recorded run."""

    def carry(self, record: RequestRecord, completion: CompletionRecord) -> None:
        """A request that never ran: its records as they were, at time 0."""
        self._append(record)
        self._append(replace(completion, ended=0.0, evicted=0.0, ended_cycle=None, evicted_cycle=None))

    def drop(self, request_id: str, completion: CompletionRecord) -> None:
        """End a request at this boundary for the recorded reason."""
        done = self.scheduler.drop(request_id, completion.reason, completion.message, self.clock.now())
        self._complete(done)


def replay(
    trace: Trace,
    policy: str | SchedulingPolicy,
    *,
    cost: CostModel | None = None,
    path: str | Path | None = None,
    force: bool = False,
    skip_invalid: bool = False,
    check: bool = False,
    **options: Any,
) -> Trace:
    """The recorded requests under another policy: a trace with its schedule, and predicted times (marked so).

    ``policy``: a preset (its policy and exec config; ``options`` override them) or a `SchedulingPolicy` (the recorded
    exec config is kept). The decode config stays the recorded one, and a preset or option that wants another is
    refused: other tokens would be written. Without ``token_budget`` a budget preset gets the memory of the recorded
    run: the cost of its largest box. ``cost``: default fitted to the trace. Output, text and grades are carried over.
    Cancelled and failed requests live as long as they were recorded to. Raises `TraceError` for a trace that does not
    hold what is needed.
    """
    profile = Profile.from_trace(trace)
    config = _config(trace, policy, options)
    completions = {c.id: c for c in trace.completion_records}
    exact = not any(r.arrival for r in trace.request_records)
    session = open_session(
        ReplaySession,
        profile,
        config,
        cost or fit_cost(trace),
        level="cycle",
        context=trace.run.model.get("context"),
        manifest={
            "model": trace.run.model,
            "dtype": trace.run.dtype,
            "seed": trace.run.seed,
            "workload": {
                **trace.run.workload,
                "replay_of": trace.run.preset,
                "schedule": "exact" if exact else "predicted",
            },
        },
        hooks=Hooks(_carry_output(completions)),
        path=path,
        force=force,
        check=check,
    )
    ran = set(profile.ids or ())
    for record in trace.request_records:
        if record.id not in ran:
            session.carry(record, completions[record.id])
    submit(session, (r for r in trace.request_records if r.id in ran), skip_invalid=skip_invalid)
    cut = {c.id: c for c in completions.values() if c.reason in CUT_SHORT and c.id in ran}
    for cycle in session.cycles():
        for row in cycle.rows:
            if row.id in cut and row.block + 1 == profile.blocks[profile.index_of(row.id)]:
                session.drop(row.id, cut.pop(row.id))
    return session.trace


def recorded_decode(trace: Trace) -> DecodeConfig:
    """The decode config a trace was recorded under."""
    values = dict(trace.run.decode)
    return from_mapping(DecodeConfig, values | {"rule": commit_rule_from_dict(values["rule"])})


def _config(trace: Trace, policy: str | SchedulingPolicy, options: Mapping[str, Any]) -> EngineConfig:
    """The recorded decode config under the wanted policy and exec config."""
    decode = recorded_decode(trace)
    if isinstance(policy, SchedulingPolicy):
        if options:
            raise ConfigError(f"a SchedulingPolicy says all of the policy; options {sorted(options)} have no place")
        return EngineConfig("replay", policy, decode, from_mapping(ExecConfig, trace.run.execution))
    kept = {"block_length": decode.block_length, "temperature": decode.temperature}
    if not any(options.get(name) is not None for name in RULE_OPTIONS):
        kept["rule"] = decode.rule
    config = resolve(policy, kept | options)
    differ = [f.name for f in fields(decode) if getattr(config.decode, f.name) != getattr(decode, f.name)]
    if differ:
        wanted = ", ".join(f"{name}={getattr(config.decode, name)!r}" for name in differ)
        recorded = ", ".join(f"{name}={getattr(decode, name)!r}" for name in differ)
        raise ConfigError(
            f"{policy!r} decodes with {wanted} but the trace was recorded with {recorded}: the tokens would be others, "
            f"which no replay can know. Run it for real, or pass {recorded} to change the policy only"
        )
    config = replace(config, overrides={k: v for k, v in options.items() if v is not None})
    return config.with_budget(_recorded_memory(trace)) if config.auto_budget else config


def _recorded_memory(trace: Trace) -> int:
    """The cost of the recorded run's largest box, or of its largest request if that is more: tokens."""
    length = trace.run.decode["block_length"]
    largest = max(r.prompt_tokens + r.blocks * length for r in trace.request_records)
    return max(largest, *(c.cost for c in trace.cycle_records))


def _carry_output(recorded: Mapping[str, CompletionRecord]) -> Callable[[Completion], Completion]:
    """Tokens, text and grade are those of the recorded run."""

    def complete(completion: Completion) -> Completion:
        old = recorded[completion.request_id]
        return replace(
            completion,
            generated_tokens=old.generated_tokens,
            output_ids=old.output_ids,
            text=old.text,
            correct=old.correct,
        )

    return complete
