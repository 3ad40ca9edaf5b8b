"""What if the same requests had been scheduled otherwise: one source, many settings, and the code of each.

A *source* is a `Profile` (run by `simulate`) or a recorded `Trace` (run by `replay`). Several sources are the same
requests under other block lengths or suffixes, which no replay can work out: those must have been recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from blockserve.core import ConfigError, DecodeConfig, TraceError, check_number
from blockserve.presets import POLICY_OPTIONS, EngineConfig, resolve
from blockserve.scheduling import FixedSlots, SchedulingPolicy, TokenBudget
from blockserve.simulation.catalogue import roofline
from blockserve.simulation.cost import CostModel
from blockserve.simulation.fitting import fit_cost
from blockserve.simulation.profile import Profile
from blockserve.studies.replay import recorded_decode, replay
from blockserve.studies.simulate import simulate
from blockserve.tracing import Trace
from blockserve.tracing.records import RequestRecord
from blockserve.workload.arrivals import Poisson

Source = Profile | Trace


@dataclass(frozen=True)
class Setting:
    """What can be varied. ``rate``: requests/s of Poisson arrivals, ``None`` for the source's own arrivals;
    ``block_length`` [tokens] and ``suffix`` [blocks, or "full"] choose the source."""

    policy: SchedulingPolicy
    block_length: int
    suffix: int | str
    rate: float | None = None

    def __post_init__(self) -> None:
        if self.rate is not None:
            check_number("arrival rate [requests/s]", self.rate, 0.0, open_low=True)


class WhatIf:
    """Runs the requests of ``sources`` under any `Setting`; ``start`` is the setting that others are compared with.

    For profiles ``preset`` and ``options`` (as for `Engine`) give the start; for traces it is the recorded policy.
    ``cost``: default LLaDA-8B on an H200 for profiles, fitted to each trace for traces. ``seed``: of arrivals.
    """

    def __init__(
        self,
        *sources: Source,
        cost: CostModel | None = None,
        preset: str = "blockserve-budget",
        seed: int = 0,
        **options: Any,
    ) -> None:
        if not sources or len({isinstance(source, Trace) for source in sources}) > 1:
            raise ConfigError("give one profile or trace, or several of the same kind")
        self.recorded = isinstance(sources[0], Trace)
        if self.recorded and options:
            raise ConfigError(f"a trace says how it was decoded and scheduled; options {sorted(options)} have no place")
        self.preset, self.seed, self.options, self._cost = preset, seed, options, cost
        self.sources: dict[tuple[int, int | str], Source] = {}
        self._fitted: dict[tuple[int, int | str], CostModel] = {}
        for source in sources:
            if isinstance(source, Trace) and source.run is None:
                raise TraceError("this trace has no run record, so its policy and block length are unknown")
            if self._key(source) in self.sources:
                raise ConfigError("two sources of block length {} and suffix {}".format(*self._key(source)))
            self.sources[self._key(source)] = source

    # ------------------------------------------------------------------------------------------ settings

    @cached_property
    def start(self) -> Setting:
        """The first source under its own policy."""
        (length, suffix), source = next(iter(self.sources.items()))
        if isinstance(source, Trace):
            return Setting(_recorded_policy(source), length, suffix)
        config = self._config(source)
        if config.auto_budget:
            config = config.with_budget(self._memory())
        return Setting(config.policy, length, suffix)

    def source(self, setting: Setting) -> Source:
        """The source recorded under the setting's block length and suffix. Raises `ConfigError` if there is none."""
        key = (setting.block_length, setting.suffix)
        if key not in self.sources:
            known = "; ".join(f"{length} and {suffix}" for length, suffix in self.sources)
            raise ConfigError(f"nothing was recorded under block length {key[0]} and suffix {key[1]}, only: {known}")
        return self.sources[key]

    def smallest_budget(self) -> int:
        """The least β under which every request of every source can be served: tokens."""
        return max(_largest_request(source) for source in self.sources.values())

    # ----------------------------------------------------------------------------------------------- runs

    def run(self, setting: Setting) -> Trace:
        """The requests under ``setting``: a trace with its schedule and predicted seconds."""
        source = self.source(setting)
        if setting.rate is not None:
            source = arriving(source, setting.rate, self.seed)
        if isinstance(source, Trace):
            return replay(source, setting.policy, cost=self._cost_of(setting))
        return simulate(source, self.preset, self._cost, **self._simulate_options(setting)).trace

    def code(self, setting: Setting, names: Sequence[str] = ()) -> str:
        """Lines of Python that reproduce `run`: its trace is ``result``.

        They expect the source under its name of ``names``, one a source (default ``trace`` or ``profile``, numbered
        if there are several), and a given cost model as ``cost``.
        """
        place = list(self.sources).index((setting.block_length, setting.suffix))
        plain = "trace" if self.recorded else "profile"
        name = names[place] if names else plain if len(self.sources) == 1 else f"{plain}_{place + 1}"
        lines, imports = [], []
        if setting.rate is not None:
            imports.append("from blockserve.studies.what_if import arriving")
            lines.append(f"{name} = arriving({name}, rate={setting.rate!r}, seed={self.seed})")
        if self.recorded:
            imports = [f"from blockserve.scheduling import {_names_of(setting.policy)}", _REPLAY, *imports]
            given = ", cost=cost" if self._cost else ""
            lines += [f"policy = {_policy_code(setting.policy)}", f"result = replay({name}, policy{given})"]
        else:
            imports = [_SIMULATE, *imports]
            arguments = [name, _literal(self.preset), *(["cost=cost"] if self._cost else [])]
            arguments += [f"{key}={_literal(v)}" for key, v in self._simulate_options(setting).items()]
            lines.append(f"result = {_call('simulate', arguments)}.trace")
        return "\n".join([*imports, "", *lines]) + "\n"

    # ---------------------------------------------------------------------------------------------- parts

    def _key(self, source: Source) -> tuple[int, int | str]:
        """(block length, suffix) a source was recorded under."""
        decode = self._decode(source)
        return decode.block_length, decode.suffix

    def _decode(self, source: Source) -> DecodeConfig:
        return recorded_decode(source) if isinstance(source, Trace) else self._config(source).decode

    def _config(self, profile: Profile) -> EngineConfig:
        return resolve(self.preset, {"block_length": profile.block_length} | self.options)

    def _memory(self) -> int:
        """β that the cost model's device has room for."""
        cost = self._cost or roofline()
        if not hasattr(cost, "token_budget"):
            raise ConfigError(f"{cost.name} has no known memory; give token_budget= or slots=")
        return cost.token_budget()

    def _cost_of(self, setting: Setting) -> CostModel:
        """The given cost model, or the one fitted to the source (once)."""
        if self._cost is not None:
            return self._cost
        key = (setting.block_length, setting.suffix)
        if key not in self._fitted:
            self._fitted[key] = fit_cost(self.sources[key])
        return self._fitted[key]

    def _simulate_options(self, setting: Setting) -> dict[str, Any]:
        """Keyword options of `simulate`: the bound, and what the preset does not say anyway."""
        policy = setting.policy
        options = {name: value for name, value in self.options.items() if name not in POLICY_OPTIONS}
        plain = resolve(self.preset, {"slots": 1}).policy
        for field in fields(policy):
            value = getattr(policy, field.name)
            if field.name == "bound":
                kind = "slots" if isinstance(value, FixedSlots) else "token_budget"
                options[kind] = value.slots if isinstance(value, FixedSlots) else value.tokens
            elif value != getattr(plain, field.name):
                options[field.name] = value
        return options


_REPLAY = "from blockserve.studies.replay import replay"
_SIMULATE = "from blockserve.studies.simulate import simulate"


def arriving(source: Source, rate: float, seed: int = 0) -> Source:
    """The same requests, in their order, arriving as a Poisson process of ``rate`` requests/s from time 0 on."""
    if isinstance(source, Profile):
        return replace(source, arrivals=Poisson(rate).times(len(source), seed))
    times = iter(Poisson(rate).times(len(source.request_records), seed).tolist())
    return Trace(replace(r, arrival=next(times)) if isinstance(r, RequestRecord) else r for r in source.records)


def _recorded_policy(trace: Trace) -> SchedulingPolicy:
    """The policy of a trace's run record."""
    values = dict(trace.run.policy)
    bound: Mapping[str, int] = values.pop("bound")
    return SchedulingPolicy(
        bound=TokenBudget(bound["budget"]) if "budget" in bound else FixedSlots(bound["slots"]), **values
    )


def _largest_request(source: Source) -> int:
    """p + K·L of the request that needs most room: tokens."""
    if isinstance(source, Trace):
        length = source.run.decode["block_length"]
        return max(r.prompt_tokens + r.blocks * length for r in source.request_records)
    return int((source.prompt_tokens + source.canvas * source.block_length).max())


def _names_of(policy: SchedulingPolicy) -> str:
    return ", ".join(sorted(("SchedulingPolicy", type(policy.bound).__name__)))


def _policy_code(policy: SchedulingPolicy) -> str:
    """The policy as Python; parts that no control varies only where they are not the default."""
    bound, plain = policy.bound, SchedulingPolicy()
    size = bound.slots if isinstance(bound, FixedSlots) else bound.tokens
    parts = [f"order={_literal(policy.order)}", f"bound={type(bound).__name__}({size})"]
    parts += [f"fill={_literal(policy.fill)}", f"quantum={_literal(policy.quantum)}"]
    for name in ("reserve", "max_wait_cycles"):
        if getattr(policy, name) != getattr(plain, name):
            parts.append(f"{name}={getattr(policy, name)!r}")
    return _call("SchedulingPolicy", parts)


def _call(name: str, arguments: Sequence[str]) -> str:
    """``name(arguments)``, an argument a line where one line would be long."""
    line = f"{name}({', '.join(arguments)})"
    return line if len(line) <= 88 else f"{name}(\n    " + ",\n    ".join(arguments) + ",\n)"


def _literal(value: Any) -> str:
    """Python for a plain value; text in double quotes."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else repr(value)
