"""`Trace`: a run's records in memory, as a file, and as DataFrames; `TraceWriter`: the file as it happens."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from blockserve.core import BlockServeError, TraceError
from blockserve.reprs import html_table, readable, sparkline
from blockserve.tracing import frames
from blockserve.tracing.records import (
    CompletionRecord,
    CycleRecord,
    EndRecord,
    Record,
    RequestRecord,
    RunRecord,
    WarningRecord,
    from_dict,
    to_dict,
)

if TYPE_CHECKING:
    import pandas as pd


class Trace:
    """What a run leaves behind: ``records`` in the order they happened, grown by `append`.

    ``run`` and ``end`` are single records (or ``None``); ``request_records``, ``cycle_records``,
    ``completion_records`` and ``warning_records`` are the records of one kind. ``complete`` is false for a
    run that was killed or a file that was cut off.
    """

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self.records: list[Record] = []
        self.run: RunRecord | None = None
        self.end: EndRecord | None = None
        self.request_records: list[RequestRecord] = []
        self.cycle_records: list[CycleRecord] = []
        self.completion_records: list[CompletionRecord] = []
        self.warning_records: list[WarningRecord] = []
        self._lists: dict[type, list[Any]] = {
            RequestRecord: self.request_records,
            CycleRecord: self.cycle_records,
            CompletionRecord: self.completion_records,
            WarningRecord: self.warning_records,
        }
        for record in records:
            self.append(record)

    def append(self, record: Record) -> None:
        """Add one record of any kind."""
        self.records.append(record)
        if isinstance(record, RunRecord):
            self.run = record
        elif isinstance(record, EndRecord):
            self.end = record
        else:
            self._lists[type(record)].append(record)

    @property
    def complete(self) -> bool:
        """Whether the run came to its end."""
        return self.end is not None and self.end.status == "complete"

    def __len__(self) -> int:
        return len(self.cycle_records)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Trace) and self.records == other.records

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Trace({', '.join(f'{k} {readable(v)}' for k, v in self._headline().items())})"

    def _headline(self) -> dict[str, Any]:
        """What a reader wants to know of any trace, whole or cut off."""
        name = f"{self.run.preset} on {self.run.model.get('name', '?')}" if self.run else "of nothing yet"
        last = self.cycle_records[-1] if self.cycle_records else None
        seconds = self.end.wall if self.end else last.start + last.duration if last else 0.0
        return {
            "run": name,
            "requests": len(self.request_records),
            "left": len(self.completion_records),
            "cycles": self.end.cycles if self.end else len(self.cycle_records),
            "seconds": round(seconds, 3),
            "status": self.end.status if self.end else "no end record: running, or cut off",
        }

    def _repr_html_(self) -> str:
        lines = {
            "rows": sparkline([c.batch for c in self.cycle_records], "rows a cycle"),
            "box": sparkline([c.cost for c in self.cycle_records], "cost in tokens"),
        }
        return html_table("Trace", self._headline(), lines if self.cycle_records else None)

    # ------------------------------------------------------------------------------------------ files

    def save(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the trace: JSONL, or Parquet for a name ending in ``.parquet``. Refuses an existing file."""
        path = check_writable(path, force=force)
        if path.suffix == ".parquet":
            frames.write_parquet(self.records, path)
        else:
            with TraceWriter(path, force=force) as writer:
                for record in self.records:
                    writer.write(record)
        return path

    @classmethod
    def load(cls, path: str | Path) -> Trace:
        """Read a trace written by `save` or by a run; either format.

        A file cut off in the middle of a line (a killed run) loads what is whole and warns what is not.
        """
        path = Path(path)
        if not path.is_file():
            raise TraceError(f"no trace file at {str(path)!r}")
        if path.suffix == ".parquet":
            return cls(frames.read_parquet(path))
        return cls(_read_jsonl(path))

    # ------------------------------------------------------------------------------------- DataFrames

    @property
    def cycles(self) -> pd.DataFrame:
        """One line a cycle; columns in `frames.cycles`."""
        return frames.cycles(self.cycle_records)

    @property
    def rows(self) -> pd.DataFrame:
        """One line a row and cycle; columns in `frames.rows`."""
        return frames.rows(self.cycle_records)

    @property
    def requests(self) -> pd.DataFrame:
        """One line a request, with how it ended; columns in `frames.requests`."""
        return frames.requests(self.request_records, self.completion_records)

    @property
    def steps(self) -> pd.DataFrame:
        """One line a row and denoise step; columns in `frames.steps`."""
        return frames.steps(self.cycle_records)

    def explain(self, cycle: int, request_id: str) -> str:
        """One sentence: what the request did at this cycle, and why (`blockserve.tracing.explain`)."""
        from blockserve.tracing.explain import explain

        return explain(self, cycle, request_id)

    def to_perfetto(self, path: str | Path, *, force: bool = False) -> Path:
        """Write the trace for Perfetto (`blockserve.tracing.export`): slots as tracks, blocks as slices, counters."""
        from blockserve.tracing.export import to_perfetto

        return to_perfetto(self, path, force=force)


class TraceWriter:
    """Appends records to a JSONL file, one flushed line each, so that a killed run leaves a readable trace."""

    def __init__(self, path: str | Path, *, force: bool = False) -> None:
        self.path = check_writable(path, force=force)
        self._file: IO[str] = self.path.open("w", encoding="utf-8")

    def write(self, record: Record) -> None:
        self._file.write(json.dumps(to_dict(record), ensure_ascii=False, separators=(",", ":")) + "\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def check_writable(path: str | Path, *, force: bool) -> Path:
    """Raise `TraceError` if ``path`` exists (unless ``force``) or its folder does not."""
    path = Path(path)
    if path.is_dir():
        raise TraceError(f"{str(path)!r} is a folder; name a file for the trace")
    if path.exists() and not force:
        raise TraceError(
            f"{str(path)!r} exists and would be overwritten; choose another name or use --force (force=True)"
        )
    if not path.parent.is_dir():
        raise TraceError(f"the folder {str(path.parent)!r} does not exist; create it first")
    return path


def _read_jsonl(path: Path) -> list[Record]:
    lines = path.read_bytes().split(b"\n")
    records: list[Record] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            records.append(from_dict(json.loads(line)))
        except (json.JSONDecodeError, UnicodeDecodeError):
            if number < len(lines):  # only the line being written when the run died may be incomplete
                raise TraceError(f"{path}, line {number}: not a JSON object; the file is damaged") from None
            warnings.warn(_cut_message(path, number, records), stacklevel=3)
        except KeyError as error:
            raise TraceError(f"{path}, line {number}: field {error} is missing") from None
        except BlockServeError as error:
            raise TraceError(f"{path}, line {number}: {error}") from None
    if not records:
        raise TraceError(f"{path} holds no whole record; it is not a trace, or the run died at once")
    if not isinstance(records[0], RunRecord):
        raise TraceError(f"{path} does not begin with a run record; it is not a trace of this program")
    return records


def _cut_message(path: Path, number: int, records: list[Record]) -> str:
    cycles = sum(isinstance(r, CycleRecord) for r in records)
    return (
        f"{path} is cut off in line {number}: loaded {cycles} whole cycles ({len(records)} records); the rest is lost"
    )
