"""Length traces: who arrived when, with how many tokens in and out. Reads the public formats from a path.

The text behind such a trace is not known. `Workload.from_trace` makes requests of the same lengths for a real
engine; the simulator takes the lengths as they are.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from blockserve.core import ConfigError, InvalidRequestError, check_int, check_number

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Format:
    """Column names of a public trace. ``arrival`` is ``None`` where none is recorded; ``seconds`` of one unit."""

    name: str
    arrival: str | None
    prompt: str
    output: str
    seconds: float = 1.0


FORMATS = (
    Format("plain", "arrival_s", "prompt_tokens", "output_tokens"),
    Format("azure", "TIMESTAMP", "ContextTokens", "GeneratedTokens"),
    Format("mooncake", "timestamp", "input_length", "output_length", seconds=1e-3),
    Format("servegen", "timestamp", "input_tokens", "output_tokens"),
    Format("burstgpt", "Timestamp", "Request tokens", "Response tokens"),
    Format("plain, lengths only", None, "prompt_tokens", "output_tokens"),
    Format("lengths only", None, "input_length", "output_length"),
)


@dataclass(frozen=True)
class Lengths:
    """One entry a request: ``arrival`` float64 [n] in seconds from the first (all 0 where the trace has none),
    ``prompt_tokens`` and ``output_tokens`` int64 [n]."""

    name: str
    arrival: np.ndarray
    prompt_tokens: np.ndarray
    output_tokens: np.ndarray

    def __len__(self) -> int:
        return len(self.arrival)

    @property
    def rate(self) -> float:
        """Mean requests/s over the span of the trace; infinite when all arrive at once."""
        span = float(self.arrival[-1]) if len(self) else 0.0
        return (len(self) - 1) / span if span else float("inf")

    def window(self, start: float, end: float) -> Lengths:
        """Requests that arrive in [``start``, ``end``) seconds; times begin at 0 again."""
        check_number("start of the window", start, 0.0)
        check_number("end of the window", end, start, open_low=True)
        return self._pick((self.arrival >= start) & (self.arrival < end), f"{start:g}-{end:g} s")

    def first(self, n: int) -> Lengths:
        """The first ``n`` requests."""
        check_int("n", n, 1)
        return self._pick(np.arange(len(self)) < n, f"first {n}")

    def at_rate(self, rate: float) -> Lengths:
        """The same gaps, scaled so that the mean rate is ``rate`` requests/s."""
        check_number("rate", rate, 0.0, open_low=True)
        if not np.isfinite(self.rate):
            raise ConfigError(f"{self.name}: all requests arrive at once, so no rate can be scaled to {rate:g}/s")
        return replace(self, arrival=self.arrival * (self.rate / rate))

    def at_most(self, *, prompt_tokens: int | None = None, output_tokens: int | None = None) -> Lengths:
        """Leave out prompts longer than ``prompt_tokens``; cut outputs at ``output_tokens``."""
        kept = self
        if prompt_tokens is not None:
            check_int("prompt_tokens", prompt_tokens, 1)
            kept = self._pick(self.prompt_tokens <= prompt_tokens, f"prompts ≤ {prompt_tokens}")
        if output_tokens is not None:
            check_int("output_tokens", output_tokens, 1)
            kept = replace(kept, output_tokens=np.minimum(kept.output_tokens, output_tokens))
        return kept

    def _pick(self, mask: np.ndarray, what: str) -> Lengths:
        if not mask.any():
            raise ConfigError(f"{self.name}: no request is left in {what}; the trace has {len(self)}")
        arrival = self.arrival[mask]
        return Lengths(self.name, arrival - arrival[0], self.prompt_tokens[mask], self.output_tokens[mask])


def read_lengths(path: str | Path) -> Lengths:
    """Read a length trace: CSV, or JSON lines for a name ending in ``.jsonl``; columns of any of `FORMATS`.

    Raises `InvalidRequestError` naming the file, the line and the fault: a missing column, a value that is no
    number, a time that is negative or earlier than the one before, a length below 1.
    """
    path = Path(path)
    table = _read_table(path)
    fmt = _recognise(path, list(table.columns))
    prompt = _whole(path, table, fmt.prompt, minimum=1)
    output = _whole(path, table, fmt.output, minimum=0)
    arrival = np.zeros(len(table)) if fmt.arrival is None else _times(path, table, fmt)
    keep = output > 0  # a request that was answered with nothing asked for nothing
    if not keep.any():
        raise InvalidRequestError(f"{path} holds no request with an output of at least one token")
    arrival = arrival[keep]
    return Lengths(path.stem, arrival - arrival[0], prompt[keep], output[keep])


def _read_table(path: Path) -> pd.DataFrame:
    import pandas as pd

    if not path.is_file():
        raise InvalidRequestError(f"no length trace at {path}")
    try:
        table = pd.read_json(path, lines=True) if path.suffix == ".jsonl" else pd.read_csv(path)
    except (ValueError, pd.errors.ParserError) as error:
        raise InvalidRequestError(f"{path} cannot be read: {str(error).strip()}") from None
    if table.empty:
        raise InvalidRequestError(f"{path} holds no requests")
    return table


def _recognise(path: Path, columns: list[str]) -> Format:
    for fmt in FORMATS:
        if {fmt.prompt, fmt.output, *([fmt.arrival] if fmt.arrival else [])} <= set(columns):
            return fmt
    known = "; ".join(f"{f.arrival}, {f.prompt}, {f.output}" for f in FORMATS if f.arrival)
    raise InvalidRequestError(
        f"{path}: columns {', '.join(map(str, columns))} miss what is needed; known sets: {known}"
    )


def _whole(path: Path, table: pd.DataFrame, column: str, minimum: int) -> np.ndarray:
    import pandas as pd

    values = pd.to_numeric(table[column], errors="coerce").to_numpy(float)
    bad = ~(values >= minimum) | (values != np.floor(values)) | ~np.isfinite(values)
    if bad.any():
        row = int(bad.argmax())
        raise InvalidRequestError(
            f"{path}, line {_line(path, row)}: {column} must be a whole number of at least {minimum}, "
            f"got {table[column].iloc[row]!r}"
        )
    return values.astype(np.int64)


def _times(path: Path, table: pd.DataFrame, fmt: Format) -> np.ndarray:
    import pandas as pd

    column = table[fmt.arrival]
    if pd.api.types.is_numeric_dtype(column):
        seconds = column.to_numpy(float) * fmt.seconds
    else:
        stamps = pd.to_datetime(column, errors="coerce", format="mixed")
        seconds = ((stamps - stamps.iloc[0]) / pd.Timedelta(seconds=1)).to_numpy(float)
    for bad, what in (
        (~np.isfinite(seconds), "is no time"),
        (seconds < 0, "is negative"),
        (np.diff(seconds, prepend=seconds[0]) < 0, "is earlier than the line before; sort the file by time"),
    ):
        if bad.any():
            row = int(bad.argmax())
            raise InvalidRequestError(f"{path}, line {_line(path, row)}: {fmt.arrival} {column.iloc[row]!r} {what}")
    return seconds


def _line(path: Path, row: int) -> int:
    """Line number in the file of a table's row; a CSV has a header line."""
    return row + (1 if path.suffix == ".jsonl" else 2)
