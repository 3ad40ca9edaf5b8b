"""The trace schema (version 1): frozen records, one JSON object a line.

Times are seconds from the start of the run; lengths and widths are tokens. A file holds one ``run``, then one
``request`` per request, then ``cycle`` and ``completion`` records as they happen, ``warning`` records anywhere,
and one ``end``. A run that was killed has no ``end``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from blockserve.core import TraceError, check_choice

SCHEMA = 1
LEVELS = ("summary", "cycle", "token")


@dataclass(frozen=True)
class RunRecord:
    """The manifest of a run: everything needed to say what it was."""

    kind: ClassVar[str] = "run"
    preset: str
    policy: Mapping[str, Any]
    decode: Mapping[str, Any]
    execution: Mapping[str, Any]
    overrides: Mapping[str, Any]
    model: Mapping[str, Any]  # name, context, mask_id, eos_ids, layers, width, ...
    device: str
    dtype: str
    clock: str
    level: str
    seed: int
    workload: Mapping[str, Any]  # name, requests, digest
    versions: Mapping[str, str]
    created: str
    schema: int = SCHEMA


@dataclass(frozen=True)
class RequestRecord:
    """One request as prepared by the engine. ``prompt_ids`` only at level ``token``."""

    kind: ClassVar[str] = "request"
    id: str
    prompt_tokens: int
    max_new_tokens: int
    blocks: int
    arrival: float = 0.0
    prompt: str = ""
    tags: Mapping[str, Any] = field(default_factory=dict)
    prompt_ids: tuple[int, ...] | None = None


@dataclass(frozen=True)
class StepRecord:
    """One commit of one row (level ``token``). ``positions`` count from the request's first prompt token."""

    positions: tuple[int, ...]
    tokens: tuple[int, ...]
    confidence: tuple[float, ...]
    texts: tuple[str, ...] = ()


@dataclass(frozen=True)
class RowRecord:
    """One row of the dense batch in one cycle.

    ``slot``: stable for a stay in the batch (lowest free). ``offset``: left padding, box width - ``width``.
    ``frozen``: it had ended before this cycle (static batching). ``steps``: steps to finish its block.
    ``passes``: forwards it took part in. ``commits[i]`` / ``valid[i]``: positions committed in step i, and those
    among them that are valid output. ``ended``: why its output became complete in this cycle, or ``None``.
    """

    id: str
    slot: int
    block: int
    prompt_tokens: int
    suffix_blocks: int
    width: int
    offset: int
    frozen: bool
    steps: int
    passes: int
    commits: tuple[int, ...]
    valid: tuple[int, ...]
    ended: str | None = None
    detail: tuple[StepRecord, ...] | None = None


@dataclass(frozen=True)
class CycleRecord:
    """One block cycle. ``admitted``, ``preempted``, ``refused`` happened at its start, ``evicted`` at its end.

    ``cost`` = ``batch`` x ``box_width``; ``padding`` = cost - sum of widths. ``refresh_passes`` and
    ``reuse_passes`` are batch passes; ``reuse_width`` is the width of a reuse pass; ``row_tokens`` sums
    rows x width over all passes. ``seconds`` has the phases schedule, layout, refresh, denoise, commit.
    """

    kind: ClassVar[str] = "cycle"
    index: int
    start: float
    duration: float
    seconds: Mapping[str, float]
    rows: tuple[RowRecord, ...]
    batch: int
    box_width: int
    cost: int
    budget: int | None
    padding: int
    queue_depth: int
    refresh_passes: int
    reuse_passes: int
    reuse_width: int
    row_passes: int
    row_tokens: int
    admitted: tuple[tuple[str, str], ...] = ()  # (id, why)
    evicted: tuple[tuple[str, str], ...] = ()  # (id, reason)
    preempted: tuple[str, ...] = ()
    refused: Mapping[str, int] = field(default_factory=dict)
    first_refused: tuple[str, str] | None = None  # (id, reason)


@dataclass(frozen=True)
class CompletionRecord:
    """How one request ended; fields as in `blockserve.core.Completion`."""

    kind: ClassVar[str] = "completion"
    id: str
    reason: str
    blocks: int
    generated_tokens: int
    valid_tokens: int
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


@dataclass(frozen=True)
class WarningRecord:
    """Something a reader of the results should know."""

    kind: ClassVar[str] = "warning"
    message: str
    cycle: int | None = None


@dataclass(frozen=True)
class EndRecord:
    """The run is over. ``status``: complete, interrupted or failed."""

    kind: ClassVar[str] = "end"
    status: str
    cycles: int
    wall: float


Record = RunRecord | RequestRecord | CycleRecord | CompletionRecord | WarningRecord | EndRecord
KINDS: dict[str, type] = {
    c.kind: c for c in (RunRecord, RequestRecord, CycleRecord, CompletionRecord, WarningRecord, EndRecord)
}


def to_dict(record: Record) -> dict[str, Any]:
    """The JSON object of a record, ``kind`` first; absent step detail is left out."""
    return {"kind": record.kind, **_plain(record)}


def _plain(value: Any) -> Any:
    """Dataclasses become dicts; the rest is JSON as it is."""
    out = {}
    for name in _names(type(value)):
        item = getattr(value, name)
        if name in ("detail", "prompt_ids") and item is None:
            continue
        if name in ("rows", "detail"):
            item = [_plain(x) for x in item]
        elif isinstance(item, Mapping):
            item = dict(item)
        out[name] = item
    return out


_FIELD_NAMES: dict[type, tuple[str, ...]] = {}


def _names(cls: type) -> tuple[str, ...]:
    if cls not in _FIELD_NAMES:
        _FIELD_NAMES[cls] = tuple(f.name for f in fields(cls))
    return _FIELD_NAMES[cls]


def from_dict(data: Mapping[str, Any]) -> Record:
    """Inverse of `to_dict`. Unknown kinds and missing fields raise `TraceError` or `UnknownNameError`."""
    values = dict(data)
    kind = values.pop("kind", None)
    check_choice("record kind", kind, KINDS)
    if kind == "run" and values.get("schema") != SCHEMA:
        raise TraceError(f"trace schema {values.get('schema')!r} is not supported; this version reads schema {SCHEMA}")
    if kind == "cycle":
        values["rows"] = tuple(_row(r) for r in values["rows"])
    return _build(KINDS[kind], values)


def _row(values: Mapping[str, Any]) -> RowRecord:
    values = dict(values)
    if values.get("detail") is not None:
        values["detail"] = tuple(_build(StepRecord, s) for s in values["detail"])
    return _build(RowRecord, values)


def _build(cls: type, values: Mapping[str, Any]) -> Any:
    try:
        return cls(**{k: _frozen(v) for k, v in values.items()})
    except TypeError as error:
        raise TraceError(f"malformed {getattr(cls, 'kind', cls.__name__)} record: {error}") from None


def _frozen(value: Any) -> Any:
    """JSON lists become tuples, so that a loaded record equals the one saved."""
    return tuple(_frozen(v) for v in value) if isinstance(value, list) else value
