"""Presets: a scheduling policy, a decode config and an exec config under one name, and how options override them.

Read downwards the table is a ladder: one change a rung, from the plainest baseline to BlockServe.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from blockserve.core import (
    CommitRule,
    ConfigError,
    DecodeConfig,
    ExecConfig,
    Factor,
    Quota,
    Threshold,
    check_choice,
    commit_rule_to_dict,
    unknown_name,
)
from blockserve.scheduling import FixedSlots, SchedulingPolicy, TokenBudget

DEFAULT_SLOTS = 8


@dataclass(frozen=True)
class Preset:
    """The parts of a preset; ``bound`` is a kind, its size comes with the engine (``slots`` or ``token_budget``)."""

    order: str
    bound: Literal["slots", "budget"]
    fill: str
    quantum: Literal["block", "request"]
    decode: DecodeConfig
    execution: ExecConfig
    about: str


_STATIC: dict[str, Any] = {"order": "fifo", "bound": "slots", "fill": "head_of_line", "quantum": "request"}
_FULL, _NO_COMPACTION, _ALL = ExecConfig("full", False), ExecConfig("block", False), ExecConfig("block", True)
_PAPER = DecodeConfig()

PRESETS: dict[str, Preset] = {
    "vanilla": Preset(
        **_STATIC,
        decode=DecodeConfig(rule=Quota(), cache="none", suffix="full", eos="ignore"),
        execution=_FULL,
        about="no cache, one token a step, the whole canvas",
    ),
    "fast-dllm-static": Preset(
        **_STATIC,
        decode=DecodeConfig(suffix="full", eos="ignore"),
        execution=_FULL,
        about="dual cache and threshold decoding, fixed groups, every row to its limit",
    ),
    "static-eos": Preset(
        **_STATIC,
        decode=DecodeConfig(suffix="full"),
        execution=_FULL,
        about="… a row ends when its end token is settled",
    ),
    "static-no-suffix": Preset(**_STATIC, decode=_PAPER, execution=_FULL, about="… rows without the masked suffix"),
    "static-block-head": Preset(
        **_STATIC, decode=_PAPER, execution=_NO_COMPACTION, about="… logits of the active block only"
    ),
    "static": Preset(
        **_STATIC, decode=_PAPER, execution=_ALL, about="… finished rows leave the active tensor (the fair baseline)"
    ),
    "block-fifo": Preset("fifo", "slots", "head_of_line", "block", _PAPER, _ALL, "… scheduled at every block boundary"),
    "blockserve-fixed": Preset(
        "longest_first", "slots", "sand", "block", _PAPER, _ALL, "… longest first, sand filling, fixed slots"
    ),
    "blockserve-budget": Preset(
        "longest_first", "budget", "sand", "block", _PAPER, _ALL, "… under a token budget instead of slots"
    ),
}

POLICY_OPTIONS = ("order", "fill", "quantum", "reserve", "max_wait_cycles", "slots", "token_budget")
RULE_OPTIONS = ("rule", "threshold", "quota", "factor")
DECODE_OPTIONS = ("block_length", "cache", "suffix", "eos", "temperature")
EXEC_OPTIONS = tuple(f.name for f in fields(ExecConfig))
OPTIONS = (*POLICY_OPTIONS, *RULE_OPTIONS, *DECODE_OPTIONS, *EXEC_OPTIONS)


@dataclass(frozen=True)
class EngineConfig:
    """What an engine does, resolved: preset and overrides, and the three configs they come to.

    ``policy`` holds the bound only after `with_budget`, when β was left to be worked out from the model.
    """

    preset: str
    policy: SchedulingPolicy
    decode: DecodeConfig
    execution: ExecConfig
    auto_budget: bool = False
    overrides: Mapping[str, Any] = field(default_factory=dict)

    def with_budget(self, tokens: int) -> EngineConfig:
        """The config with β worked out."""
        return replace(self, policy=replace(self.policy, bound=TokenBudget(tokens)), auto_budget=False)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in a trace's run record: policy, decode, execution, overrides."""
        decode = {f.name: getattr(self.decode, f.name) for f in fields(self.decode)}
        decode["rule"] = commit_rule_to_dict(self.decode.rule)
        execution = {f.name: getattr(self.execution, f.name) for f in fields(self.execution)}
        return {
            "policy": self.policy.to_dict(),
            "decode": decode,
            "execution": execution,
            "overrides": {k: repr(v) if k == "rule" else v for k, v in self.overrides.items()},
        }


def preset_table() -> list[dict[str, str]]:
    """Every preset and its parts, in the order of the ladder."""
    return [
        {
            "preset": name,
            "order": p.order,
            "bound": p.bound,
            "fill": p.fill,
            "quantum": p.quantum,
            "cache": p.decode.cache,
            "rule": p.decode.rule.kind,
            "suffix": str(p.decode.suffix),
            "eos": p.decode.eos,
            "head": p.execution.head,
            "compaction": "on" if p.execution.compaction else "off",
            "about": p.about,
        }
        for name, p in PRESETS.items()
    ]


def resolve(preset: str, options: Mapping[str, Any]) -> EngineConfig:
    """Preset plus overrides → `EngineConfig`. ``None`` means "as the preset has it"; unknown names raise."""
    check_choice("preset", preset, PRESETS)
    given = {name: value for name, value in options.items() if value is not None}
    for name in given:
        if name not in OPTIONS:
            raise unknown_name("option", name, OPTIONS)
    base = PRESETS[preset]
    bound, auto = _bound(base, given)
    policy = {name: given[name] for name in POLICY_OPTIONS[:5] if name in given}
    parts = {"order": base.order, "fill": base.fill, "quantum": base.quantum, "bound": bound} | policy
    decode = {name: given[name] for name in DECODE_OPTIONS if name in given}
    rule = _rule(given)
    if rule is not None:
        decode["rule"] = rule
    return EngineConfig(
        preset=preset,
        policy=SchedulingPolicy(**parts),
        decode=replace(base.decode, **decode),
        execution=replace(base.execution, **{name: given[name] for name in EXEC_OPTIONS if name in given}),
        auto_budget=auto,
        overrides=given,
    )


def _bound(base: Preset, given: Mapping[str, Any]) -> tuple[FixedSlots | TokenBudget, bool]:
    """The bound, and whether β is still to be worked out (then a placeholder of one token)."""
    slots, budget = given.get("slots"), given.get("token_budget")
    if slots is not None and budget is not None:
        raise ConfigError(f"slots={slots!r} and token_budget={budget!r} exclude each other; give one of them")
    if slots is not None or (budget is None and base.bound == "slots"):
        return FixedSlots(DEFAULT_SLOTS if slots is None else slots), False
    if budget is None or budget == "auto":
        return TokenBudget(1), True
    return TokenBudget(budget), False


def _rule(given: Mapping[str, Any]) -> CommitRule | None:
    """At most one of rule, threshold, quota and factor."""
    names = [name for name in RULE_OPTIONS if name in given]
    if len(names) > 1:
        raise ConfigError(f"{' and '.join(names)} exclude each other; give one commit rule")
    if not names:
        return None
    value = given[names[0]]
    if names[0] == "rule":
        return value
    return {"threshold": Threshold, "quota": Quota, "factor": Factor}[names[0]](value)
