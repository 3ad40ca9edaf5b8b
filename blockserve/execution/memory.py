"""The token budget β that memory allows: measured on an accelerator, worked out on a CPU.

The paper takes β from "offline profiling of peak memory". Here a block cycle is run at three boxes, the peak is
fitted as ``a + b · cells``, and β is the largest number of cells that keeps it within a share of the memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import psutil
import torch

from blockserve.core import BatchPlan, BlockServeError, DecodeConfig, ExecConfig, Request, RowPlan, check_number
from blockserve.execution.executor import TorchExecutor
from blockserve.execution.model import DiffusionModel

CAP_ROWS = 8  # on a CPU memory is rarely the limit: the cap is this many rows of the whole context
PROFILE_ROWS = (2, 4, 8)  # boxes to measure, each as wide as the context allows, up to PROFILE_WIDTH
PROFILE_WIDTH = 512

Meter = Callable[[Callable[[], object]], int]
"""Runs a function and returns the peak memory [bytes] while it ran."""


@dataclass(frozen=True)
class MemoryFit:
    """Peak memory of a cycle ≈ ``base_bytes + bytes_per_cell · cells``, and what follows for ``memory_bytes``.

    ``points``: (cells, peak bytes) as measured; empty when worked out analytically. ``cap``: a ceiling on β that is
    not memory, ``None`` without one.
    """

    base_bytes: float
    bytes_per_cell: float
    memory_bytes: float
    share: float
    points: tuple[tuple[int, int], ...] = ()
    cap: int | None = None

    @property
    def budget(self) -> int:
        """The largest β in tokens that keeps the peak within ``share`` of the memory. At least 1."""
        cells = int((self.memory_bytes * self.share - self.base_bytes) / self.bytes_per_cell)
        return max(1, cells if self.cap is None else min(cells, self.cap))


def bytes_per_cell(model: DiffusionModel) -> float:
    """Bytes one cell of the box needs at the peak of a cycle, worked out from the model's shape: KV of all layers,
    one layer's activations, and the block's logits (three float64 copies in the softmax) of a row two blocks wide."""
    config, size = model.network.config, model.dtype.itemsize
    kv = 2 * config.num_layers * config.num_kv_heads * config.head_dim * size
    activations = (6 * config.hidden_size + 3 * config.intermediate_size) * size
    return kv + activations + 3 * 8 * config.vocab_size / 2


def analytic_fit(model: DiffusionModel, share: float = 0.5) -> MemoryFit:
    """From the free memory and the model's shape; β is capped at eight rows of the whole context."""
    free = psutil.virtual_memory().available
    return MemoryFit(0.0, bytes_per_cell(model), free, share, cap=CAP_ROWS * model.context)


def measured_fit(
    model: DiffusionModel,
    decode: DecodeConfig,
    execution: ExecConfig,
    share: float = 0.9,
    *,
    meter: Meter | None = None,
    memory_bytes: int | None = None,
) -> MemoryFit:
    """Run one cycle at each of three boxes and fit the peak. ``meter`` and ``memory_bytes`` default to the
    accelerator's own. Raises `BlockServeError` when the peaks do not grow with the box."""
    meter = meter or _accelerator_peak
    if memory_bytes is None:
        memory_bytes = torch.cuda.get_device_properties(model.device).total_memory
    width = min(PROFILE_WIDTH, model.context)
    points = []
    for rows in PROFILE_ROWS:
        run = _one_cycle(model, decode, execution, rows, width)
        run()  # the first run of a shape also allocates workspaces and compiles
        points.append((rows * width, meter(run)))
    slope, base = np.polyfit(*zip(*points, strict=True), deg=1)
    if not slope > 0:
        raise BlockServeError(f"peak memory does not grow with the box ({points}); give token_budget a number")
    return MemoryFit(float(base), float(slope), memory_bytes, share, tuple(points))


def memory_fit(
    model: DiffusionModel, decode: DecodeConfig, execution: ExecConfig, share: float | None = None
) -> MemoryFit:
    """Measured on an accelerator (default share 0.9), analytic on a CPU (default share 0.5 of what is free)."""
    if share is not None:
        check_number("memory share", share, 0.0, 1.0, open_low=True)
    if model.device.type == "cuda":
        return measured_fit(model, decode, execution, share or 0.9)
    return analytic_fit(model, share or 0.5)


def _one_cycle(
    model: DiffusionModel, decode: DecodeConfig, execution: ExecConfig, rows: int, width: int
) -> Callable[[], Any]:
    """A function that runs the first cycle of ``rows`` rows of ``width`` tokens."""
    length = decode.block_length
    prompt = width - length
    token = next(i for i in range(model.network.config.vocab_size) if i not in model.banned_ids)
    plans = tuple(RowPlan(str(i), i, 0, 1, prompt, 0, width) for i in range(rows))

    def run() -> Any:
        executor = TorchExecutor(model, decode, execution)
        for row in plans:
            executor.add(Request(row.request_id, prompt_ids=(token,) * prompt, max_new_tokens=length), blocks=1)
        return executor.execute(BatchPlan(0, plans, width, None))

    return run


def _accelerator_peak(run: Callable[[], object]) -> int:
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()
