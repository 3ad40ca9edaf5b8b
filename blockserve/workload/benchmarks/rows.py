"""Rows of a data file (JSON lines, gzipped or not, a JSON array, CSV, Parquet, a folder of JSON files), each with its
place in the file, so that a fault can be named."""

from __future__ import annotations

import csv
import gzip
import importlib
import importlib.util
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockserve.core import ConfigError, InvalidRequestError

FORMS = ".jsonl, .json, .csv (each also with .gz), .parquet, or a folder of .json files"


@dataclass(frozen=True)
class Row:
    """One problem as its file has it. Column names are compared without case, spaces as underscores."""

    values: Mapping[str, Any]
    where: str

    def has(self, *names: str) -> bool:
        """True when one of the columns is there and not empty."""
        return any(self.values.get(name) is not None for name in names)

    def get(self, *names: str) -> Any:
        """The value of the first of these columns that is there."""
        for name in names:
            if self.values.get(name) is not None:
                return self.values[name]
        columns = ", ".join(self.values) or "none"
        raise InvalidRequestError(f"{self.where}: needs a column {' or '.join(names)}; its columns are {columns}")

    def text(self, *names: str) -> str:
        """As `get`, and it is text that is not blank; Unix line ends."""
        value = self.get(*names)
        if not isinstance(value, str) or not value.strip():
            raise InvalidRequestError(f"{self.where}: {names[0]} must be text and not empty, got {str(value)[:40]!r}")
        if any("\ud800" <= c <= "\udfff" for c in value):
            raise InvalidRequestError(f"{self.where}: {names[0]} holds half of a surrogate pair, which is no text")
        return value.replace("\r\n", "\n")

    def texts(self, *names: str) -> list[str]:
        """As `get`, and it is a list of texts, or one text with ``;`` between them (TruthfulQA)."""
        value = self.get(*names)
        parts = value.split(";") if isinstance(value, str) else value
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise InvalidRequestError(f"{self.where}: {names[0]} must be a list of texts, got {str(value)[:40]!r}")
        return [part.strip().replace("\r\n", "\n") for part in parts if part.strip()]


def read_rows(path: str | Path) -> tuple[Row, ...]:
    """Every row of a file or folder. Raises `InvalidRequestError` naming the file, and the line where there is one."""
    path = Path(path)
    if path.is_dir():
        rows = tuple(_row(_json(file.read_bytes(), str(file)), str(file)) for file in sorted(path.rglob("*.json")))
    elif path.suffix == ".parquet":
        rows = tuple(_parquet(path))
    else:
        rows = tuple(_text_rows(path))
    if not rows:
        raise InvalidRequestError(f"{path} holds no problems; it must be {FORMS}")
    return rows


def _text_rows(path: Path) -> Iterator[Row]:
    suffix = Path(path.stem).suffix if path.suffix == ".gz" else path.suffix
    if suffix not in (".jsonl", ".json", ".csv"):
        raise InvalidRequestError(f"{path}: the form is told by the name; it must be {FORMS}")
    text = _read_text(path)
    if suffix == ".csv":
        yield from _csv(text, path)
    elif text.lstrip().startswith("["):
        for number, values in enumerate(_json(text, str(path)), start=1):
            yield _row(values, f"{path}, entry {number}")
    else:
        # Split at newlines alone: JSON strings may hold other line separators of Unicode as they are.
        for number, line in enumerate(text.split("\n"), start=1):
            if line.strip():
                where = f"{path}, line {number}"
                yield _row(_json(line, where), where)


def _csv(text: str, path: Path) -> Iterator[Row]:
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="")
    try:
        for values in reader:
            where = f"{path}, line {reader.line_num}"
            if "" in values or None in values.values():
                columns = len(reader.fieldnames or ())
                raise InvalidRequestError(f"{where}: has more or fewer values than the header's {columns} columns")
            yield _row(values, where)
    except csv.Error as error:
        raise InvalidRequestError(f"{path}, line {reader.line_num}: not valid CSV ({error})") from None


def _read_text(path: Path) -> str:
    try:
        data = path.read_bytes()
        return (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8-sig")
    except FileNotFoundError:
        raise InvalidRequestError(f"no benchmark file at {path}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text: byte {error.start} cannot be read") from None
    except (OSError, EOFError) as error:
        raise InvalidRequestError(f"cannot read the benchmark file {path}: {error}") from None


def _parquet(path: Path) -> Iterator[Row]:
    import pyarrow.parquet as pq  # plain Python lists, where pandas would give arrays

    try:
        table = pq.read_table(path)
    except FileNotFoundError:
        raise InvalidRequestError(f"no benchmark file at {path}") from None
    except (OSError, ValueError) as error:  # what pyarrow raises is a ValueError
        raise InvalidRequestError(f"{path} is not a readable Parquet file: {error}") from None
    return (_row(values, f"{path}, row {number}") for number, values in enumerate(table.to_pylist(), start=1))


def _json(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InvalidRequestError(f"{where}: not valid JSON ({error})") from None


def _row(values: Any, where: str) -> Row:
    if not isinstance(values, dict):
        raise InvalidRequestError(f"{where}: must be a JSON object, got {str(values)[:40]}")
    return Row({str(name).strip().lower().replace(" ", "_"): value for name, value in values.items()}, where)


def hub_rows(benchmark: str, dataset: str, config: str, split: str) -> tuple[Row, ...]:
    """A split by the user's own ``datasets`` package, which BlockServe does not install."""
    if importlib.util.find_spec("datasets") is None:
        raise ConfigError(
            f"no path given for {benchmark}, and the package datasets, which could fetch it, is not installed; "
            f"give path= to its file ({FORMS})"
        )
    try:
        # By name at run time: an import statement would make it one of our dependencies.
        rows: Iterable[Mapping[str, Any]] = importlib.import_module("datasets").load_dataset(
            dataset, config, split=split
        )
    except Exception as error:  # of many kinds: the hub, the network, the cache
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise ConfigError(f"datasets cannot load {dataset} ({split}): {reason}; give path= to a file of it") from None
    return tuple(_row(dict(values), f"{dataset} {split}, row {number}") for number, values in enumerate(rows, start=1))
