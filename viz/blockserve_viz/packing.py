"""Named integer and float columns ↔ one byte string and a list that says where each lies.

Integers take the narrowest type; a constant column takes no bytes; one whose values rise or fall evenly is stored as
its steps. Columns are aligned to 8 bytes, so that a browser reads them as typed arrays without a copy. A large
payload is deflated as a whole: browsers undo that themselves.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

PLAIN = 256_000  # bytes up to which nothing is deflated: a page is drawn sooner without
HOPELESS = 4  # times the limit, in values: no deflation makes that fit, so none is tried
LEVEL = 6  # of zlib; 9 takes four times as long for 2%

Columns = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Encoded:
    """``data``: the columns; ``spec``: where each lies; ``meta``: constants. All but data are JSON."""

    data: bytes
    spec: list[dict[str, Any]]
    meta: dict[str, Any]


def pack(columns: Columns, meta: Mapping[str, Any], limit: int | None = None, optional: Sequence[str] = ()) -> Encoded:
    """Lay ``columns`` out. ``optional`` ones are dropped, the last first, until at most ``limit`` bytes are left."""
    columns, left = dict(columns), list(optional)
    while True:
        hopeless = limit is not None and left and sum(map(len, columns.values())) > HOPELESS * limit
        encoded = None if hopeless else _lay_out(columns, meta)
        if encoded is not None and (limit is None or len(encoded.data) <= limit or not left):
            return encoded
        columns.pop(left.pop(), None)


def unpack(encoded: Encoded) -> dict[str, np.ndarray]:
    """Inverse of `pack`: the columns by name, read-only."""
    data = zlib.decompress(encoded.data) if encoded.meta.get("packed") else encoded.data
    columns = {}
    for entry in encoded.spec:
        dtype, count = np.dtype(f"<{entry['dtype']}"), entry["length"]
        if "constant" in entry:
            values = np.full(count, entry["constant"], dtype)
        else:
            values = np.frombuffer(data, dtype, count, entry["offset"])
        if "first" in entry:
            values = np.cumsum(np.concatenate([[entry["first"]], values.astype(np.int64)]))
        columns[entry["name"]] = values
    return columns


def whole_numbers(values: Iterable[Any]) -> np.ndarray:
    """A column of integers."""
    return np.fromiter(values, np.int64)


def _lay_out(columns: Columns, meta: Mapping[str, Any]) -> Encoded:
    parts, spec, offset = [], [], 0
    for name, values in columns.items():
        values, entry = _column(np.asarray(values))
        spec.append({"name": name, **entry, "offset": offset})
        if "constant" not in entry:
            parts.append(values.tobytes() + bytes(-values.nbytes % 8))
            offset += len(parts[-1])
    data, meta = b"".join(parts), {k: v for k, v in meta.items() if k != "packed"}
    if len(data) > PLAIN:
        return Encoded(zlib.compress(data, LEVEL), spec, {**meta, "packed": "deflate", "bytes": len(data)})
    return Encoded(data, spec, meta)


def _column(values: np.ndarray) -> tuple[np.ndarray, dict[str, Any]]:
    """What to store of a column, and its entry: dtype and length of what is stored, ``constant`` or ``first``."""
    stored, entry = _narrow(values), {}
    if stored.dtype.kind == "u" and len(stored) > 2:
        steps = _narrow(np.diff(values.astype(np.int64)))
        if steps.dtype.kind == "u" and (steps.dtype.itemsize < stored.dtype.itemsize or _is_constant(steps)):
            stored, entry = steps, {"first": int(values[0])}
    if _is_constant(stored):
        entry = {**entry, "constant": stored[0].item()}
    return stored, {"dtype": f"{stored.dtype.kind}{stored.dtype.itemsize}", "length": len(stored), **entry}


def _narrow(values: np.ndarray) -> np.ndarray:
    """The same values, little-endian, in the narrowest of u1, u2, u4, i4, f4, f8 that holds them."""
    if values.dtype.kind == "f":
        return values.astype(f"<f{values.dtype.itemsize}")
    low, high = (int(values.min()), int(values.max())) if len(values) else (0, 0)
    if low < 0:
        return values.astype("<i4")
    return values.astype("<u1" if high < 2**8 else "<u2" if high < 2**16 else "<u4")


def _is_constant(values: np.ndarray) -> bool:
    return len(values) > 1 and bool((values == values[0]).all())
