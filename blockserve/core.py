"""Shared nouns: requests, configurations, plans, results and errors.

Standard library only. Every other module speaks in these types, so each field says who fills it.
Words are those of the glossary in README.md (block, cycle, row, box, budget, commit rule, settled).
"""

from __future__ import annotations

import difflib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, NamedTuple

from blockserve.reprs import html_table

CacheMode = Literal["dual", "prefix", "none"]
EosMode = Literal["settled", "block", "ignore"]
Suffix = int | Literal["full"]
EndReason = Literal["eos", "stop", "length", "cancelled", "error", "rejected"]
AdmitReason = Literal["head", "fits", "grow", "held", "readmitted"]
RefusalReason = Literal["budget", "box", "slots", "group", "held"]

CACHE_MODES: tuple[str, ...] = ("dual", "prefix", "none")
MAX_LISTED = 20  # names in an error message
EOS_MODES: tuple[str, ...] = ("settled", "block", "ignore")


# ---------------------------------------------------------------------------------------------- errors


class BlockServeError(ValueError):
    """A mistake a user can correct: the message names the value, what is allowed, and what to do."""


class ConfigError(BlockServeError):
    """A configuration value is out of its range or of the wrong kind."""


class UnknownNameError(BlockServeError):
    """A name that is not registered; the message lists the known ones."""


class InvalidRequestError(BlockServeError):
    """A request that can never be served (empty, too long, larger than the budget, holds the mask id)."""


class PolicyError(BlockServeError):
    """A user-written order or fill broke its contract."""


class CheckpointError(BlockServeError):
    """A checkpoint folder is missing something or holds something unexpected; names the file and the key."""


class TraceError(BlockServeError):
    """A trace file cannot be written or read."""


class OutOfMemoryError(RuntimeError):
    """The accelerator ran out of memory in a cycle; nothing of that cycle was committed."""


def unknown_name(kind: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Return (not raise) the error for an unknown ``name``: the nearest known name and the whole list."""
    names = sorted(known)
    near = nearest(str(name), names)
    hint = f" Did you mean {near!r}?" if near else ""
    listed = ", ".join(names[:MAX_LISTED]) + (f", … ({len(names)} in all)" if len(names) > MAX_LISTED else "")
    return UnknownNameError(f"unknown {kind} {name!r}.{hint} Known: {listed}")


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The known name that ``name`` is a part of, or is most like, as a whole or in one of its words (``bugdet`` is
    like ``token_budget``); ``None`` where there is none."""
    known = list(known)
    holding = [whole for whole in known if name and name in whole]
    if len(holding) == 1:
        return holding[0]
    forms = {word: whole for whole in reversed(known) for word in re.split(r"[_-]", whole) if len(word) > 3}
    forms |= {whole: whole for whole in known}
    close = difflib.get_close_matches(name, forms, n=1)
    return forms[close[0]] if close else None


def check_choice(kind: str, value: object, known: Iterable[str]) -> None:
    """Raise `UnknownNameError` unless ``value`` is one of ``known``."""
    known = tuple(known)
    if value not in known:
        raise unknown_name(kind, value, known)


def check_int(name: str, value: object, minimum: int) -> None:
    """Raise `ConfigError` unless ``value`` is an int (no bool) of at least ``minimum``."""
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise ConfigError(f"{name} must be a whole number of at least {minimum}, got {value!r}")


def check_number(name: str, value: object, low: float, high: float = math.inf, *, open_low: bool = False) -> None:
    """Raise `ConfigError` unless ``value`` is a finite number in [low, high] (or (low, high])."""
    bad = isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value)
    if bad or value > high or value < low or (open_low and value == low):
        bracket = "(" if open_low else "["
        upper = f"{high:g}]" if math.isfinite(high) else "inf)"
        raise ConfigError(f"{name} must be in {bracket}{low:g}, {upper}, got {value!r}")


def from_mapping(cls: type, values: Mapping[str, Any]) -> Any:
    """Build dataclass ``cls`` from ``values``; an unknown key raises with the nearest valid one."""
    known = [f.name for f in fields(cls) if f.init]
    for key in values:
        if key not in known:
            raise unknown_name(f"{cls.__name__} field", key, known)
    return cls(**values)


# ---------------------------------------------------------------------------------------- commit rules


@dataclass(frozen=True)
class Threshold:
    """Commit every masked position with confidence >= ``tau``, and always the most confident one."""

    kind: ClassVar[str] = "threshold"
    tau: float = 0.9

    def __post_init__(self) -> None:
        check_number("threshold", self.tau, 0.0, 1.0, open_low=True)


@dataclass(frozen=True)
class Quota:
    """Spread the block's masks evenly over ``steps`` steps, the remainder to the first ones.

    ``steps`` above the block length acts as the block length; ``None`` means one token a step.
    """

    kind: ClassVar[str] = "quota"
    steps: int | None = None

    def __post_init__(self) -> None:
        if self.steps is not None:
            check_int("quota steps", self.steps, 1)


@dataclass(frozen=True)
class Factor:
    """Commit the largest ``n`` most confident with ``(n + 1) * (1 - c_n) <= factor``, at least one."""

    kind: ClassVar[str] = "factor"
    factor: float = 1.0

    def __post_init__(self) -> None:
        check_number("factor", self.factor, 0.0, open_low=True)


CommitRule = Threshold | Quota | Factor
COMMIT_RULES: dict[str, type] = {rule.kind: rule for rule in (Threshold, Quota, Factor)}


def commit_rule_to_dict(rule: CommitRule) -> dict[str, Any]:
    """``{"kind": ..., parameter: value}``, the form used in traces."""
    return {"kind": rule.kind, **{f.name: getattr(rule, f.name) for f in fields(rule)}}


def commit_rule_from_dict(values: Mapping[str, Any]) -> CommitRule:
    """Inverse of `commit_rule_to_dict`."""
    rest = dict(values)
    kind = rest.pop("kind", None)
    check_choice("commit rule", kind, COMMIT_RULES)
    return from_mapping(COMMIT_RULES[kind], rest)


# -------------------------------------------------------------------------------------- configurations


@dataclass(frozen=True)
class DecodeConfig:
    """What decides the tokens. Two runs that share it (and model and seeds) give the same tokens.

    ``suffix`` is how many masked blocks after the active one a row shows (0: none, the paper's choice;
    ``"full"``: the whole canvas). ``eos``: see README, *settled*.
    """

    block_length: int = 16
    rule: CommitRule = field(default_factory=Threshold)
    cache: CacheMode = "dual"
    suffix: Suffix = 0
    eos: EosMode = "settled"
    temperature: float = 0.0

    def __post_init__(self) -> None:
        check_int("block_length", self.block_length, 1)
        if not isinstance(self.rule, (Threshold, Quota, Factor)):
            raise ConfigError(f"rule must be Threshold, Quota or Factor, got {self.rule!r}")
        check_choice("cache mode", self.cache, CACHE_MODES)
        check_choice("eos mode", self.eos, EOS_MODES)
        if self.suffix != "full":
            try:
                check_int("suffix", self.suffix, 0)
            except ConfigError:
                raise ConfigError(
                    f'suffix must be a whole number of at least 0 or "full", got {self.suffix!r}'
                ) from None
        check_number("temperature", self.temperature, 0.0)


@dataclass(frozen=True)
class ExecConfig:
    """What decides only the work, never a token.

    ``head``: logits of the active block only, or of the full width. ``compaction``: rows whose block is
    finished leave the active tensor at once.
    """

    head: Literal["block", "full"] = "block"
    compaction: bool = True

    def __post_init__(self) -> None:
        check_choice("head", self.head, ("block", "full"))
        if not isinstance(self.compaction, bool):
            raise ConfigError(f"compaction must be True or False, got {self.compaction!r}")


# -------------------------------------------------------------------------------- requests and results


@dataclass(frozen=True)
class Request:
    """One prompt and its limit, as a user states it.

    ``prompt_ids`` and ``max_new_tokens`` may be left out; the engine fills them (tokenizer, default limit).
    ``prompt_tokens`` is for workloads that know only lengths: the engine draws that many tokens by ``seed``.
    ``rule``, ``temperature``: override the run's `DecodeConfig` for this request.
    ``arrival`` is in seconds from the start of the run. ``tags`` is free (task, reference, ...).
    """

    id: str
    prompt: str = ""
    prompt_ids: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    max_new_tokens: int | None = None
    arrival: float = 0.0
    seed: int = 0
    rule: CommitRule | None = None
    temperature: float | None = None
    stop: tuple[str, ...] = ()
    tags: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.prompt_tokens is not None:
            check_int(f"prompt_tokens of request {self.id!r}", self.prompt_tokens, 1)
        if self.max_new_tokens is not None:
            check_int(f"max_new_tokens of request {self.id!r}", self.max_new_tokens, 1)
        check_number(f"arrival of request {self.id!r}", self.arrival, 0.0)
        if self.temperature is not None:
            check_number(f"temperature of request {self.id!r}", self.temperature, 0.0)

    def _repr_html_(self) -> str:
        tokens = self.prompt_tokens if self.prompt_ids is None else len(self.prompt_ids)
        values = {"prompt": self.prompt or None, "prompt tokens": tokens, "max_new_tokens": self.max_new_tokens}
        values |= {"arrival": self.arrival or None, "stop": ", ".join(map(repr, self.stop)) or None}
        shown = {name: value for name, value in values.items() if value is not None}
        return html_table(f"Request {self.id}", shown | {k: v for k, v in self.tags.items() if k != "grading"})


@dataclass(frozen=True)
class RequestShape:
    """All that the scheduler knows of a request: no tensors, no text."""

    id: str
    prompt_tokens: int
    max_new_tokens: int
    arrival: float = 0.0


class RowPlan(NamedTuple):
    """One row of a cycle, as planned. ``ended`` rows (static batching) are frozen: nothing is committed.

    A named tuple, as `RowResult`: a simulation makes tens of millions of them, in a quarter of a dataclass's time.
    """

    request_id: str
    slot: int
    block: int
    num_blocks: int
    prompt_tokens: int
    suffix_blocks: int
    width: int
    ended: bool = False


@dataclass(frozen=True)
class Admission:
    """Why a request entered the batch at this boundary."""

    request_id: str
    why: AdmitReason


@dataclass(frozen=True)
class Refusals:
    """Who stayed queued at this boundary: counts by reason, and the first refused request."""

    counts: Mapping[str, int] = field(default_factory=dict)
    first_id: str | None = None
    first_reason: str | None = None


@dataclass(frozen=True)
class BatchPlan:
    """One block cycle to execute. Filled by the scheduler."""

    cycle: int
    rows: tuple[RowPlan, ...]
    box_width: int
    budget: int | None
    admitted: tuple[Admission, ...] = ()
    preempted: tuple[str, ...] = ()
    refused: Refusals = field(default_factory=Refusals)
    queue_depth: int = 0

    @property
    def cost(self) -> int:
        """Tokens of the bounding box (paper, Eq. 1)."""
        return len(self.rows) * self.box_width


@dataclass(frozen=True)
class Idle:
    """Nothing to run now: ``until`` is the next arrival in seconds, ``None`` when all is done."""

    until: float | None


@dataclass(frozen=True)
class StepDetail:
    """One commit of one row. ``positions`` count from 0 at the first prompt token, ascending."""

    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidence: tuple[float, ...]


class RowResult(NamedTuple):
    """What one row did in a cycle. Filled by the executor.

    ``commits[i]`` positions fixed in step i, of which ``valid[i]`` are valid output (before the first end
    token and within the limit); ``passes``: forwards the row took part in (at least ``len(commits)``);
    ``eos_offset``: offset into the generation of the first end token known so far; ``ended``: why the valid
    output is complete, if it is; ``valid_tokens``: valid output so far.
    """

    request_id: str
    commits: tuple[int, ...]
    valid: tuple[int, ...]
    passes: int
    eos_offset: int | None
    ended: EndReason | None
    valid_tokens: int
    detail: tuple[StepDetail, ...] | None = None


@dataclass(frozen=True)
class CycleResult:
    """One executed cycle: rows in the plan's order, batch passes, work and seconds per phase."""

    rows: tuple[RowResult, ...]
    refresh_passes: int
    reuse_passes: int
    reuse_width: int
    row_passes: int
    row_tokens: int
    seconds: Mapping[str, float]


@dataclass(frozen=True)
class Completion:
    """How one request ended. Times are seconds from the start of the run; ``None`` where it never ran.

    ``reason`` (of `EndReason`), ``ended_*``: the valid output was complete; ``evicted_*``: it left the batch,
    which is when its user has it. ``output_ids`` is the whole generation up to its limit, ``text`` the valid
    part decoded, ``correct`` what the grader says (``None`` without one).
    """

    request_id: str
    reason: EndReason
    blocks: int
    valid_tokens: int
    generated_tokens: int = 0
    arrival: float = 0.0
    admitted: float | None = None
    first_block: float | None = None
    ended: float | None = None
    evicted: float | None = None
    ended_cycle: int | None = None
    evicted_cycle: int | None = None
    output_ids: tuple[int, ...] = ()
    text: str = ""
    correct: bool | None = None
    message: str = ""
