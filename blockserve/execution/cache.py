"""The KV cache of one block cycle: filled by the refresh pass, replaced in place by reuse passes.

It lives for a cycle and has one owner, the executor. Keys are cached after their rotation.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Write:
    """Where a reuse pass puts its keys and values: ``columns`` int [R, C]; ``real`` bool [R, C] is false at the
    left padding of a piece (rows whose piece is shorter), which must leave the cache as it is; ``None``: all real."""

    columns: Tensor
    real: Tensor | None = None


class KVCache:
    """Keys and values per layer, each [rows, kv_heads, W, head_dim]."""

    def __init__(self) -> None:
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self._write: Write | None = None

    def writing(self, write: Write) -> KVCache:
        """The cache, set to replace these columns in the next forward."""
        self._write = write
        return self

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """In the refresh pass store all columns; later scatter [rows, kv_heads, C, head_dim] into their columns."""
        if self._write is None:
            assert layer == len(self._keys), "layers fill the cache in order"
            self._keys.append(key)
            self._values.append(value)
            return key, value
        self._scatter(self._keys[layer], key)
        self._scatter(self._values[layer], value)
        return self._keys[layer], self._values[layer]

    def _scatter(self, cached: Tensor, new: Tensor) -> None:
        index = self._write.columns[:, None, :, None].expand_as(new)
        if self._write.real is not None:
            new = new.where(self._write.real[:, None, :, None], cached.gather(2, index))
        cached.scatter_(2, index, new)

    def keep_rows(self, keep: Tensor) -> None:
        """Compaction: drop all rows but those of the index tensor."""
        self._keys = [k[keep] for k in self._keys]
        self._values = [v[keep] for v in self._values]
