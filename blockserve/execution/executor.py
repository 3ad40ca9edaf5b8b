"""`TorchExecutor`: runs one block cycle of a plan on a real model.

A cycle is a refresh pass over the whole box, whose logits already commit tokens (step 0), then reuse passes
against the cached keys and values until every row's block is finished (paper, mixed-state execution).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from blockserve.core import (
    BatchPlan,
    CycleResult,
    DecodeConfig,
    ExecConfig,
    OutOfMemoryError,
    Request,
    RowPlan,
    RowResult,
    StepDetail,
)
from blockserve.execution import decode as rules
from blockserve.execution.cache import KVCache, Write
from blockserve.execution.canvas import Canvas, FindStop
from blockserve.execution.layout import Layout, gather_columns
from blockserve.execution.model import DiffusionModel

PHASES = ("layout", "refresh", "denoise", "commit")


@dataclass
class _Blocks:
    """The active blocks of one cycle, all [R, L]: tokens so far, still masked, step and confidence of each commit."""

    tokens: Tensor
    masked: Tensor
    step: Tensor
    confidence: Tensor


class TorchExecutor:
    """Executes plans; owns every request's tokens between cycles. Same calls as the simulator's executor."""

    def __init__(
        self,
        model: DiffusionModel,
        decode: DecodeConfig,
        execution: ExecConfig,
        *,
        detail: bool = False,
        find_stop: FindStop | None = None,
    ) -> None:
        self.model, self.decode, self.execution, self.detail = model, decode, execution, detail
        self.find_stop = find_stop
        self.device = model.device
        self._store: dict[str, Canvas] = {}
        self._banned = torch.tensor(model.banned_ids, device=self.device)
        self._ends = torch.tensor(model.end_ids, device=self.device)

    # ------------------------------------------------------------------------------------------ tokens

    def add(self, request: Request, blocks: int) -> None:
        """Take a request (with ``prompt_ids`` and limit) whose canvas has ``blocks`` blocks."""
        self._store[request.id] = Canvas.of(request, blocks, self.decode.block_length, self.model.mask_id)

    def output(self, request_id: str) -> tuple[int, ...]:
        """The generated tokens so far, at most the limit, and no further than a settled end."""
        return self._store[request_id].output(self.model.mask_id, until_end=self.decode.eos == "settled")

    def remove(self, request_id: str) -> None:
        """Forget a request's tokens."""
        self._store.pop(request_id, None)

    # ----------------------------------------------------------------------------------------- a cycle

    @torch.inference_mode()
    def execute(self, plan: BatchPlan) -> CycleResult:
        """Run one block cycle. Raises `OutOfMemoryError` with nothing committed when the accelerator is full."""
        try:
            return _Cycle(self, plan).run()
        except torch.OutOfMemoryError as error:
            raise OutOfMemoryError(str(error)) from None

    def canvases(self, plan: BatchPlan) -> list[Canvas]:
        """The canvases of a plan's rows, in its order."""
        return [self._store[row.request_id] for row in plan.rows]


class _Cycle:
    """The execution of one plan. Row indices are those of the plan; ``active`` holds the rows in the tensors."""

    def __init__(self, executor: TorchExecutor, plan: BatchPlan) -> None:
        self.executor, self.plan = executor, plan
        self.model, self.decode, self.execution = executor.model, executor.decode, executor.execution
        self.length, self.device = executor.decode.block_length, executor.device
        self.canvases = executor.canvases(plan)
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.row_passes = self.row_tokens = self.reuse_passes = 0
        self.passes = [0] * len(plan.rows)

    def run(self) -> CycleResult:
        with self._timed("layout"):
            self._lay_out()
        with self._timed("refresh"):
            logits = self._full_pass()
        with self._timed("commit"):
            self._commit(logits, step=0)
        for step in range(1, self.length + 1):
            if not self._unfinished():
                break
            self.reuse_passes += 1
            with self._timed("denoise"):
                logits = self._full_pass() if self.decode.cache == "none" else self._reuse_pass()
            with self._timed("commit"):
                self._commit(logits, step)
        assert not self._unfinished(), "every step commits at least one token, so L steps finish a block"
        return self._result()

    def _lay_out(self) -> None:
        """The box: ids, layout, and the active blocks, fully masked except in frozen rows."""
        plan, length = self.plan, self.length
        ids = torch.full((len(plan.rows), plan.box_width), self.model.pad_id)
        for index, (row, canvas) in enumerate(zip(plan.rows, self.canvases, strict=True)):
            ids[index, plan.box_width - row.width :] = canvas.ids[: row.width]
        self.ids = ids.to(self.device)
        self.layout = Layout.of(plan, length, self.device)
        self.visible = self.layout.visible
        frozen = torch.tensor([row.ended for row in plan.rows], device=self.device)
        tokens = gather_columns(self.ids, self.layout.block)
        masked = ~frozen[:, None].expand_as(tokens)
        step = torch.full_like(tokens, -1)
        self.blocks = _Blocks(
            tokens, masked.clone(), step, torch.zeros(tokens.shape, dtype=torch.float64, device=self.device)
        )
        self.finished = frozen.clone()
        self.active = torch.arange(len(plan.rows), device=self.device)
        self.cache = KVCache()
        self.reuse_width = self._piece_width()

    def _piece_width(self) -> int:
        """Width of a reuse pass: the block (dual), or the widest block-to-row-end among its rows (prefix)."""
        if self.decode.cache == "none":
            return self.plan.box_width
        rows = [r for r in self.plan.rows if not (r.ended and self.execution.compaction)]
        extra = max((r.suffix_blocks for r in rows), default=0) if self.decode.cache == "prefix" else 0
        return (1 + extra) * self.length

    # ------------------------------------------------------------------------------------------ passes

    def _full_pass(self) -> Tensor:
        """Forward whole rows (the refresh pass; every pass without a cache) → logits of the block [rows, L, V]."""
        self._count(self.plan.box_width)
        layout = self.layout.rows(self.active)
        visible = None if self.visible is None else layout.valid
        cache = self.cache if self.decode.cache != "none" else None
        hidden = self.model.network(self.ids[self.active], layout.positions, visible, cache)
        columns = layout.block - 1 if self.model.shifted else layout.block
        if self.execution.head == "full":
            return gather_columns(self.model.network.head(hidden), columns)
        return self.model.network.head(gather_columns(hidden, columns))

    def _reuse_pass(self) -> Tensor:
        """Forward the pieces against the cache, replacing their keys and values → logits of the block [rows, L, V]."""
        self._count(self.reuse_width)
        layout = self.layout.rows(self.active)
        columns, real = layout.block, None
        if self.decode.cache == "prefix":
            first = self.plan.box_width - self.reuse_width
            columns = torch.arange(first, self.plan.box_width, device=self.device).expand(len(self.active), -1)
            real = columns >= layout.block[:, :1]
            columns = columns.contiguous()
        ids, positions = gather_columns(self.ids[self.active], columns), gather_columns(layout.positions, columns)
        visible = None if self.visible is None else layout.valid
        hidden = self.model.network(ids, positions, visible, self.cache.writing(Write(columns, real)))
        place = layout.block - columns[:, :1]  # the block's place in the piece
        if self.model.shifted:  # shifted within the piece; its first position is committed already
            place = (place - 1).clamp(min=0)
        if self.execution.head == "full":
            return gather_columns(self.model.network.head(hidden), place)
        return self.model.network.head(gather_columns(hidden, place))

    def _count(self, width: int) -> None:
        rows = self.active.tolist()
        self.row_passes += len(rows)
        self.row_tokens += len(rows) * width
        for row in rows:
            self.passes[row] += 1

    # ----------------------------------------------------------------------------------------- commits

    def _commit(self, logits: Tensor, step: int) -> None:
        """Fix positions of the active rows' blocks, then compact."""
        blocks, active = self.blocks, self.active
        tokens, confidence = rules.propose(logits, self.executor._banned, self._noise(step, logits.shape[-1]))
        masked = blocks.masked[active] & ~self.finished[active][:, None]
        chosen = rules.commit(confidence, masked, self._rules(), step, first_only=self.model.shifted)
        blocks.tokens[active] = torch.where(chosen, tokens, blocks.tokens[active])
        blocks.masked[active] &= ~chosen
        blocks.step[active] = blocks.step[active].masked_fill(chosen, step)
        blocks.confidence[active] = torch.where(chosen, confidence, blocks.confidence[active])
        rows = torch.arange(len(self.plan.rows), device=self.device)[:, None]
        self.ids[rows, self.layout.block] = blocks.tokens
        self._finish_blocks()

    def _noise(self, step: int, vocabulary: int) -> Tensor | None:
        requests = [self.canvases[i].request for i in self.active.tolist()]
        own = [request.temperature for request in requests]
        temperatures = [self.decode.temperature if t is None else t for t in own]
        rows = [self.plan.rows[i] for i in self.active.tolist()]
        noise = rules.gumbel_noise(
            [request.seed for request in requests],
            temperatures,
            [r.block for r in rows],
            step,
            (self.length, vocabulary),
        )
        return None if noise is None else noise.to(self.device)

    def _rules(self) -> list:
        return [self.canvases[i].request.rule or self.decode.rule for i in self.active.tolist()]

    def _finish_blocks(self) -> None:
        """Mark rows whose block needs no more steps; with compaction they leave the tensors at once."""
        done = ~self.blocks.masked.any(1)
        if self.decode.eos == "settled":
            done |= self._end_within_limit(self.blocks.tokens, self.blocks.masked) < self.length
        self.finished |= done
        if self.execution.compaction:
            keep = (~self.finished[self.active]).nonzero()[:, 0]
            if len(keep) < len(self.active):
                self.active = self.active[keep]
                if self.decode.cache != "none":
                    self.cache.keep_rows(keep)

    def _end_within_limit(self, tokens: Tensor, masked: Tensor) -> Tensor:
        """Index in each row's block of its settled end token, ``L`` if none or beyond the request's limit: int [R]."""
        end = rules.settled_end(tokens, masked, self.executor._ends)
        room = [c.limit - r.block * self.length for r, c in zip(self.plan.rows, self.canvases, strict=True)]
        return end.masked_fill(end >= torch.tensor(room, device=self.device), self.length)

    def _unfinished(self) -> bool:
        return not bool(self.finished.all())

    # ----------------------------------------------------------------------------------------- results

    def _result(self) -> CycleResult:
        with self._timed("commit"):
            blocks = self.blocks
            ends = self._end_within_limit(blocks.tokens, blocks.masked).tolist()
            tokens, steps = blocks.tokens.cpu(), blocks.step.tolist()
            confidence = blocks.confidence.tolist()
            rows = [
                self._row_result(i, row, tokens[i], steps[i], confidence[i], ends[i])
                for i, row in enumerate(self.plan.rows)
            ]
        return CycleResult(
            rows=tuple(rows),
            refresh_passes=1,
            reuse_passes=self.reuse_passes,
            reuse_width=self.reuse_width,
            row_passes=self.row_passes,
            row_tokens=self.row_tokens,
            seconds=self.seconds,
        )

    def _row_result(
        self, index: int, row: RowPlan, tokens: Tensor, steps: list[int], confidence: list[float], end: int
    ) -> RowResult:
        canvas, passes = self.canvases[index], self.passes[index]
        if row.ended:
            return RowResult(row.request_id, (), (), passes, canvas.eos_offset, None, canvas.valid_tokens(row.block))
        ended = canvas.write(row.block, tokens, end, self.executor.find_stop)
        valid_here = canvas.valid_tokens(row.block) - row.block * self.length
        by_step: list[list[int]] = [[] for _ in range(max(steps) + 1)]
        for position, step in enumerate(steps):
            if step >= 0:
                by_step[step].append(position)
        start = canvas.start(row.block)
        return RowResult(
            request_id=row.request_id,
            commits=tuple(len(group) for group in by_step),
            valid=tuple(sum(position < valid_here for position in group) for group in by_step),
            passes=passes,
            eos_offset=canvas.eos_offset,
            ended=ended,
            valid_tokens=canvas.valid_tokens(row.block),
            detail=self._detail(by_step, start, tokens.tolist(), confidence) if self.executor.detail else None,
        )

    @staticmethod
    def _detail(
        by_step: list[list[int]], start: int, tokens: list[int], confidence: list[float]
    ) -> tuple[StepDetail, ...]:
        return tuple(
            StepDetail(
                tuple(start + p for p in group), tuple(tokens[p] for p in group), tuple(confidence[p] for p in group)
            )
            for group in by_step
        )

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        begin = time.perf_counter()
        yield
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        self.seconds[phase] += time.perf_counter() - begin
