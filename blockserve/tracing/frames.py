"""Records as pandas DataFrames (long form) and as Parquet. Seconds and tokens throughout."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.core import TraceError
from blockserve.tracing.records import CompletionRecord, CycleRecord, Record, RequestRecord, from_dict, to_dict

if TYPE_CHECKING:
    import pandas as pd

CYCLE_COLUMNS = (
    "index start duration batch box_width cost budget padding queue_depth "
    "refresh_passes reuse_passes reuse_width row_passes row_tokens"
).split()
ROW_COLUMNS = "id slot block prompt_tokens suffix_blocks width offset frozen steps passes ended".split()
REQUEST_COLUMNS = "id prompt_tokens max_new_tokens blocks arrival".split()
COMPLETION_COLUMNS = (
    "reason blocks generated_tokens valid_tokens admitted first_block ended evicted "
    "ended_cycle evicted_cycle correct text"
).split()


def cycles(records: Sequence[CycleRecord]) -> pd.DataFrame:
    """``index`` of the cycle; ``start``, ``duration`` [s]; ``batch`` [rows]; ``box_width``, ``cost``, ``budget``,
    ``padding`` [tokens]; ``queue_depth`` [requests]; ``refresh_passes``, ``reuse_passes`` [batch passes];
    ``reuse_width`` [tokens]; ``row_passes``; ``row_tokens``; ``seconds_<phase>`` [s]; ``admitted``, ``evicted``,
    ``preempted``, ``refused`` [requests]."""
    import pandas as pd

    phases = sorted({phase for r in records for phase in r.seconds})
    table = []
    for r in records:
        line: dict[str, Any] = {name: getattr(r, name) for name in CYCLE_COLUMNS}
        line |= {f"seconds_{phase}": r.seconds.get(phase, 0.0) for phase in phases}
        line |= {"admitted": len(r.admitted), "evicted": len(r.evicted), "preempted": len(r.preempted)}
        table.append(line | {"refused": sum(r.refused.values())})
    names = [*CYCLE_COLUMNS, *(f"seconds_{p}" for p in phases), "admitted", "evicted", "preempted", "refused"]
    return pd.DataFrame(table, columns=names)


def rows(records: Sequence[CycleRecord]) -> pd.DataFrame:
    """``cycle`` and the scalar fields of `RowRecord`; ``commits`` and ``valid`` [tokens committed in the cycle]."""
    import pandas as pd

    table = [
        {"cycle": c.index}
        | {name: getattr(r, name) for name in ROW_COLUMNS}
        | {"commits": sum(r.commits), "valid": sum(r.valid)}
        for c in records
        for r in c.rows
    ]
    return pd.DataFrame(table, columns=["cycle", *ROW_COLUMNS, "commits", "valid"])


def requests(records: Sequence[RequestRecord], completions: Sequence[CompletionRecord]) -> pd.DataFrame:
    """``id``, ``prompt_tokens``, ``max_new_tokens``, ``blocks`` (K, the canvas), ``arrival`` [s]; then how it ended:
    ``reason``, ``blocks_used``, ``generated_tokens``, ``valid_tokens``, ``admitted``, ``first_block``, ``ended``,
    ``evicted`` [s], ``ended_cycle``, ``evicted_cycle``, ``correct``, ``text``; ``task`` where tagged."""
    import pandas as pd

    done = {c.id: c for c in completions}
    table = []
    for r in records:
        line: dict[str, Any] = {name: getattr(r, name) for name in REQUEST_COLUMNS}
        c = done.get(r.id)
        ended = {name: getattr(c, name) if c else None for name in COMPLETION_COLUMNS}
        ended["blocks_used"] = ended.pop("blocks")
        table.append(line | {"task": r.tags.get("task")} | ended)
    names = [n if n != "blocks" else "blocks_used" for n in COMPLETION_COLUMNS]
    return pd.DataFrame(table, columns=[*REQUEST_COLUMNS, "task", *names])


def steps(records: Sequence[CycleRecord]) -> pd.DataFrame:
    """One line a row and denoise step: ``cycle``, ``id``, ``block``, ``step`` (0 = refresh pass), ``commits``,
    ``valid`` [tokens]; at level ``token`` also ``positions``, ``tokens``, ``confidence`` (tuples)."""
    import pandas as pd

    table = []
    for c in records:
        for r in c.rows:
            for step, (commits, valid) in enumerate(zip(r.commits, r.valid, strict=True)):
                line: dict[str, Any] = {"cycle": c.index, "id": r.id, "block": r.block, "step": step}
                line |= {"commits": commits, "valid": valid}
                if r.detail is not None:
                    d = r.detail[step]
                    line |= {"positions": d.positions, "tokens": d.tokens, "confidence": d.confidence}
                table.append(line)
    names = ["cycle", "id", "block", "step", "commits", "valid"]
    detailed = any(r.detail is not None for c in records for r in c.rows)
    return pd.DataFrame(table, columns=names + (["positions", "tokens", "confidence"] if detailed else []))


def write_parquet(records: Iterable[Record], path: Path) -> None:
    """One line a record: its kind and its JSON, zstd-compressed. Round trips every kind."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    dicts = [to_dict(r) for r in records]
    table = pa.table({"kind": [d["kind"] for d in dicts], "json": [json.dumps(d, ensure_ascii=False) for d in dicts]})
    pq.write_table(table, path, compression="zstd")


def read_parquet(path: Path) -> list[Record]:
    """Inverse of `write_parquet`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
    except pa.ArrowInvalid as error:
        raise TraceError(f"{path} is not a Parquet file: {error}") from None
    if table.column_names != ["kind", "json"]:
        raise TraceError(f"{path} is a Parquet file but no trace (columns {table.column_names})")
    return [from_dict(json.loads(text)) for text in table["json"].to_pylist()]
