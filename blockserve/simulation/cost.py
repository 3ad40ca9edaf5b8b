"""What a forward takes: model shapes, devices, and a roofline of the two. Seconds, tokens, FLOP, bytes.

A pass forwards ``rows`` rows with ``cells`` query tokens each against ``context`` keys each, and the head on
``head_cells`` tokens a row. Refresh pass of a box of width W: ``cells = context = W``; reuse pass with dual cache:
``cells = L``, ``context = W``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from blockserve.core import check_number


@dataclass(frozen=True)
class ModelShape:
    """The numbers of a transformer that decide its cost. ``weight_bytes``: per weight and cached value (bf16: 2)."""

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    intermediate: int
    vocabulary: int
    weight_bytes: int = 2

    @property
    def backbone(self) -> int:
        """Weights of all layers: q, o, k, v projections and a gated MLP."""
        kv = self.hidden * self.kv_heads // self.heads
        return self.layers * self.hidden * (2 * self.hidden + 2 * kv + 3 * self.intermediate)

    @property
    def head(self) -> int:
        """Weights of the output projection."""
        return self.hidden * self.vocabulary

    @property
    def attention_flop(self) -> int:
        """FLOP of one (query, key) pair over all layers: scores and values, a multiply and an add each."""
        return 4 * self.hidden * self.layers

    @property
    def kv_bytes(self) -> int:
        """Cached keys and values of one token, all layers."""
        return 2 * self.weight_bytes * self.layers * self.hidden * self.kv_heads // self.heads

    @property
    def cell_bytes(self) -> int:
        """Peak memory of one cell of the box: its KV and one layer's activations."""
        return self.kv_bytes + self.weight_bytes * (6 * self.hidden + 3 * self.intermediate)


@dataclass(frozen=True)
class Device:
    """Peak dense FLOP/s, memory bandwidth in bytes/s and memory in bytes."""

    name: str
    flops: float
    bandwidth: float
    memory: float


@dataclass(frozen=True)
class CycleWork:
    """The passes of one block cycle. ``rows`` x ``width``: the box of the refresh pass; ``reuse_rows``: rows in each
    later pass, which forwards ``reuse_width`` cells a row; ``full_head``: logits of all cells, else of the block."""

    rows: int
    width: int
    block_length: int
    reuse_rows: Sequence[int] = ()
    reuse_width: int = 0
    full_head: bool = False

    @property
    def cells(self) -> int:
        """Row-tokens of all passes."""
        return self.rows * self.width + sum(self.reuse_rows) * self.reuse_width


class CostModel(Protocol):
    """Seconds of a cycle by phase: those of ``schedule``, ``layout``, ``refresh``, ``denoise``, ``commit`` it knows."""

    name: str

    def cycle(self, work: CycleWork) -> dict[str, float]: ...


@dataclass(frozen=True)
class Roofline:
    """The longer of computing and reading, at an ``efficiency`` of the device's peaks, plus fixed overheads.

    A pass of ``B`` rows with ``C`` cells against ``W`` keys and ``H`` head cells takes
    ``max(B·[C·(back + att·W) + H·head] / (efficiency·FLOP/s), (weights + B·W·kv) / (efficiency·bytes/s))
    + pass_overhead + B·row_overhead`` seconds, with ``back = 2·backbone``, ``head = 2·head weights`` FLOP a token.
    """

    shape: ModelShape
    device: Device
    efficiency: float
    pass_overhead: float
    row_overhead: float

    def __post_init__(self) -> None:
        check_number("efficiency", self.efficiency, 0.0, 1.0, open_low=True)
        check_number("pass_overhead [s]", self.pass_overhead, 0.0)
        check_number("row_overhead [s]", self.row_overhead, 0.0)

    @property
    def name(self) -> str:
        return f"{self.shape.name} on {self.device.name}"

    def row_flop(self, cells: int, context: int, head_cells: int) -> float:
        """FLOP of one row in a pass."""
        s = self.shape
        return cells * (2 * s.backbone + s.attention_flop * context) + head_cells * 2 * s.head

    def pass_seconds(self, rows: int, cells: int, context: int, head_cells: int) -> float:
        """One forward."""
        s, d = self.shape, self.device
        compute = rows * self.row_flop(cells, context, head_cells) / d.flops
        read = ((s.backbone + s.head) * s.weight_bytes + rows * context * s.kv_bytes) / d.bandwidth
        return max(compute, read) / self.efficiency + self.pass_overhead + rows * self.row_overhead

    def refresh_seconds(self, rows: int, width: int, block_length: int, *, full_head: bool = False) -> float:
        """The refresh pass over a box of ``rows`` x ``width``."""
        return self.pass_seconds(rows, width, width, width if full_head else block_length)

    def reuse_seconds(self, rows: int, cells: int, width: int, block_length: int, *, full_head: bool = False) -> float:
        """A reuse pass of ``cells`` tokens a row against ``width`` cached ones."""
        return self.pass_seconds(rows, cells, width, cells if full_head else block_length)

    def cycle(self, work: CycleWork) -> dict[str, float]:
        length, full = work.block_length, work.full_head
        denoise, rows, seconds = 0.0, -1, 0.0
        for count in work.reuse_rows:  # mostly runs of equal counts
            if count != rows:
                rows = count
                seconds = self.reuse_seconds(rows, work.reuse_width, work.width, length, full_head=full)
            denoise += seconds
        refresh = self.refresh_seconds(work.rows, work.width, length, full_head=full)
        return {"refresh": refresh, "denoise": denoise}

    def token_budget(self, memory: float = 0.9) -> int:
        """β that fits in a share of the device's memory beside the weights: tokens of the box."""
        check_number("memory share", memory, 0.0, 1.0, open_low=True)
        s = self.shape
        free = memory * self.device.memory - (s.backbone + 2 * s.head) * s.weight_bytes  # embedding and head
        return max(1, int(free // s.cell_bytes))
