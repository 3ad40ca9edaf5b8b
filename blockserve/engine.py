"""The engine: requests in, block cycles out, a trace behind. The loop is `Engine.cycles`; it reads like Algorithm 1."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.checkpoints import load_model
from blockserve.clock import Clock, WallClock
from blockserve.core import (
    BatchPlan,
    BlockServeError,
    Completion,
    Idle,
    InvalidRequestError,
    OutOfMemoryError,
    Request,
    RequestShape,
    check_choice,
    check_int,
)
from blockserve.manifest import run_record
from blockserve.presets import EngineConfig, resolve
from blockserve.scheduling import Scheduler
from blockserve.tracing import Trace, TraceWriter
from blockserve.tracing.metrics import compare
from blockserve.tracing.recording import completion_record, cycle_record, request_record
from blockserve.tracing.records import LEVELS, CycleRecord, EndRecord, Record, WarningRecord
from blockserve.workload.sources import Workload

if TYPE_CHECKING:
    import pandas as pd

    from blockserve.execution.model import DiffusionModel

DEFAULT_LIMIT = 80  # new tokens; the small models are trained for it


@dataclass(frozen=True)
class Run:
    """What `Engine.run` returns: the trace, and the completions in the order of the workload."""

    trace: Trace
    completions: tuple[Completion, ...]

    def summary(self, baseline_slots: int = 8) -> pd.DataFrame:
        """Throughput, latency, padding, accuracy and where the work went: one line a metric."""
        return compare({self.trace.run.preset: self.trace}, baseline_slots)

    @property
    def texts(self) -> dict[str, str]:
        """Valid output text by request id."""
        return {c.request_id: c.text for c in self.completions}


class Engine:
    """A model, a policy and a way to decode.

    ``model``: a built-in name, a checkpoint folder, or a loaded `DiffusionModel`. ``preset`` names policy, decode
    and exec config; keyword options override its parts and are recorded: ``order fill quantum reserve
    max_wait_cycles slots token_budget``, ``threshold`` or ``quota`` or ``factor`` or ``rule``, ``block_length cache
    suffix eos temperature``, ``head compaction``. ``max_new_tokens``: limit of requests that state none.
    ``trace_level``: ``summary``, ``cycle`` or ``token``. ``check``: assert the scheduler's invariants every cycle.
    """

    def __init__(
        self,
        model: str | Path | DiffusionModel = "tiny-llada",
        preset: str = "blockserve-budget",
        *,
        device: str | None = None,
        dtype: str | None = None,
        max_new_tokens: int = DEFAULT_LIMIT,
        trace_level: str = "cycle",
        seed: int = 0,
        check: bool = False,
        **options: Any,
    ) -> None:
        config = resolve(preset, options)
        check_choice("trace level", trace_level, LEVELS)
        check_int("max_new_tokens", max_new_tokens, 1)
        self.model = load_model(model, device=device, dtype=dtype) if isinstance(model, (str, Path)) else model
        self.config: EngineConfig = self._with_budget(config)
        self.max_new_tokens, self.trace_level, self.seed, self.check = max_new_tokens, trace_level, seed, check
        self._session: _Session | None = None

    def _with_budget(self, config: EngineConfig) -> EngineConfig:
        if not config.auto_budget:
            return config
        from blockserve.execution.memory import auto_budget

        return config.with_budget(auto_budget(self.model, config.decode.block_length))

    # ----------------------------------------------------------------------------------------- running

    def run(
        self,
        workload: Workload | Iterable[Request],
        *,
        trace: str | Path | None = None,
        force: bool = False,
        skip_invalid: bool = False,
        progress: bool = False,
    ) -> Run:
        """Run a workload to its end. ``trace``: file to write as it happens; ``progress``: show a bar.

        All requests are checked first and every offender is named, unless ``skip_invalid`` ends those as
        ``rejected``. An interrupt ends the rest as ``cancelled`` and returns what is done.
        """
        self.submit(workload, trace=trace, force=force, skip_invalid=skip_invalid)
        session = self._session
        try:
            for _ in session.bar(self.cycles(), show=progress):
                pass
        except KeyboardInterrupt:
            warnings.warn("interrupted: what was not finished is recorded as cancelled", stacklevel=2)
        return Run(session.trace, session.completions())

    def submit(
        self,
        workload: Workload | Iterable[Request],
        *,
        trace: str | Path | None = None,
        force: bool = False,
        skip_invalid: bool = False,
    ) -> None:
        """Check and queue a workload for the next `cycles`. Raises `InvalidRequestError` naming every offender."""
        if not isinstance(workload, Workload):
            workload = Workload("requests", tuple(workload))
        self._session = _Session(self, workload, trace, force=force, skip_invalid=skip_invalid)

    def cycles(self) -> Iterator[CycleRecord]:
        """Run what was submitted, one block cycle an item. Leaving the loop early cancels the rest."""
        if self._session is None or self._session.closed:
            raise BlockServeError("nothing to run: call submit(workload) before cycles()")
        session, status = self._session, "interrupted"
        scheduler, executor, clock = session.scheduler, session.executor, session.clock
        try:
            while not isinstance(plan := session.plan(), Idle) or plan.until is not None:
                if isinstance(plan, Idle):
                    clock.wait_until(plan.until)
                    continue
                try:
                    result = executor.execute(plan)
                except OutOfMemoryError as error:
                    session.shed(plan, error)
                    continue
                clock.advance(sum(result.seconds.values()))
                departures = scheduler.finish(result, session.started, clock.now())
                yield session.record(plan, result, departures)
            status = "complete"
        except (KeyboardInterrupt, GeneratorExit):
            raise
        except BaseException:
            status = "failed"
            raise
        finally:
            session.close(status)

    @property
    def trace(self) -> Trace:
        """The trace of the run in progress, or of the last one."""
        if self._session is None:
            raise BlockServeError("there is no trace yet: call run(workload), or submit(workload) and cycles()")
        return self._session.trace


class _Session:
    """One run of an engine: its scheduler, executor, clock and trace. Nothing of it is shared with other runs."""

    def __init__(
        self, engine: Engine, workload: Workload, path: str | Path | None, *, force: bool, skip_invalid: bool
    ) -> None:
        from blockserve.execution.executor import TorchExecutor

        config, model = engine.config, engine.model
        self.engine, self.workload, self.closed = engine, workload, False
        self.scheduler = Scheduler(
            config.policy,
            config.decode.block_length,
            suffix=config.decode.suffix,
            run_to_limit=config.decode.eos == "ignore",
            context=model.context,
        )
        detail = engine.trace_level == "token"
        self.executor = TorchExecutor(model, config.decode, config.execution, detail=detail)
        self.trace, self._done = Trace(), {}
        prepared, rejected = self._prepare(workload.requests, skip_invalid)
        self._writer = None if path is None else TraceWriter(path, force=force)
        self._append(run_record(engine, workload))
        self._submit(prepared, rejected)
        self.clock: Clock = WallClock()
        self.started = self._schedule_seconds = 0.0

    # -------------------------------------------------------------------------------------- requests

    def _prepare(
        self, requests: Iterable[Request], skip_invalid: bool
    ) -> tuple[list[Request], dict[str, tuple[Request, str]]]:
        """Requests with ids and limits; those that cannot be served, with the reason."""
        prepared: list[Request] = []
        rejected: dict[str, tuple[Request, str]] = {}
        for request in requests:
            try:
                encoded = self._encode(request)
                self.scheduler.check_request(_shape(encoded))
                prepared.append(encoded)
            except InvalidRequestError as error:
                rejected[request.id] = (request, str(error))
        if rejected and not skip_invalid:
            lines = [message for _, message in rejected.values()]
            raise InvalidRequestError(
                lines[0] if len(lines) == 1 else f"{len(lines)} requests cannot be served:\n  " + "\n  ".join(lines)
            )
        return prepared, rejected

    def _encode(self, request: Request) -> Request:
        """Fill in prompt ids and the default limit; reject what no model can continue."""
        model, ids = self.engine.model, request.prompt_ids
        if ids is None:
            if model.tokenizer is None:
                raise InvalidRequestError(
                    f"model {model.name!r} has no tokenizer; request {request.id!r} needs prompt_ids"
                )
            ids = tuple(model.tokenizer.encode(request.prompt))
        if not ids:
            raise InvalidRequestError(f"request {request.id!r} has an empty prompt; give at least one token")
        if model.mask_id in ids:
            place = ids.index(model.mask_id)
            raise InvalidRequestError(
                f"request {request.id!r} holds the mask token ({model.mask_id}) at position {place}; "
                "a prompt must hold none, masks mark what the model is to write"
            )
        size = model.network.config.vocab_size
        if min(ids) < 0 or max(ids) >= size:
            raise InvalidRequestError(f"request {request.id!r} holds a token id outside 0 … {size - 1}")
        return replace(request, prompt_ids=ids, max_new_tokens=request.max_new_tokens or self.engine.max_new_tokens)

    def _submit(self, prepared: list[Request], rejected: dict[str, tuple[Request, str]]) -> None:
        with_ids = self.engine.trace_level == "token"
        for request in prepared:
            blocks = self.scheduler.geometry.blocks(request.max_new_tokens)
            self.scheduler.submit(_shape(request))
            self.executor.add(request, blocks)
            self._append(request_record(request, blocks, with_ids=with_ids))
        for request, message in rejected.values():
            limit = request.max_new_tokens or self.engine.max_new_tokens
            stand_in = replace(request, prompt_ids=request.prompt_ids or (), max_new_tokens=limit)
            blocks = self.scheduler.geometry.blocks(limit)
            self._append(request_record(stand_in, blocks, with_ids=False))
            self._complete(Completion(request.id, "rejected", 0, 0, arrival=request.arrival, message=message))

    # ---------------------------------------------------------------------------------------- cycles

    def plan(self) -> BatchPlan | Idle:
        """The scheduler's next plan, timed."""
        self.started = self.clock.now()
        begin = time.perf_counter()
        plan = self.scheduler.plan(self.started)
        if self.engine.check:
            self.scheduler.check()
        self._schedule_seconds = time.perf_counter() - begin
        return plan

    def record(self, plan: BatchPlan, result: Any, departures: Any) -> CycleRecord:
        """Append the cycle and its completions to the trace."""
        tokenizer = self.engine.model.tokenizer
        record = cycle_record(
            plan,
            result,
            departures.ended,
            departures.completions,
            start=self.started,
            end=self.clock.now(),
            schedule_seconds=self._schedule_seconds,
            decode=tokenizer.decode if tokenizer else None,
        )
        if self.engine.trace_level != "summary":
            self._append(record)
        for completion in departures.completions:
            self._complete(completion)
        return record

    def shed(self, plan: BatchPlan, error: OutOfMemoryError) -> None:
        """The accelerator was full: halve the batch and go on, or end the one row that cannot run."""
        if self.scheduler.shed():
            message = (
                f"out of memory with {len(plan.rows)} rows × {plan.box_width}; bound lowered to {self.scheduler.bound}"
            )
        else:
            row = plan.rows[0]
            message = f"out of memory with request {row.request_id!r} alone at width {row.width}: {error}"
            self._complete(self.scheduler.drop(row.request_id, "error", message, self.clock.now()))
        warnings.warn(message, stacklevel=3)
        self._append(WarningRecord(message, plan.cycle))

    def _complete(self, completion: Completion) -> None:
        """Add output, text and grade, and put the completion in the trace."""
        if completion.reason != "rejected":
            ids = self.executor.output(completion.request_id)
            self.executor.remove(completion.request_id)
            tokenizer = self.engine.model.tokenizer
            text = tokenizer.decode(ids[: completion.valid_tokens]) if tokenizer else ""
            grade = self.workload.grade(completion.request_id, text)
            completion = replace(
                completion,
                output_ids=ids,
                generated_tokens=len(ids),
                text=text,
                correct=None if grade is None else grade.correct,
            )
        self._done[completion.request_id] = completion
        self._append(completion_record(completion))

    def close(self, status: str) -> None:
        """End the run: cancel what is left, write the end record, close the file."""
        now = self.clock.now()
        for request_id in self.scheduler.unfinished():
            self._complete(self.scheduler.drop(request_id, "cancelled", f"the run was {status}", now))
        self._append(EndRecord(status, self.scheduler.cycle, now))
        if self._writer is not None:
            self._writer.close()
        self.closed = True

    def completions(self) -> tuple[Completion, ...]:
        """In the order of the workload."""
        return tuple(self._done[r.id] for r in self.workload.requests if r.id in self._done)

    def bar(self, cycles: Iterator[CycleRecord], *, show: bool) -> Iterator[CycleRecord]:
        """Pass the cycles through, with a progress bar over requests."""
        from tqdm.auto import tqdm

        with tqdm(total=len(self.workload.requests), unit="request", disable=not show) as progress:
            for record in cycles:
                progress.update(len(record.evicted))
                progress.set_postfix(rows=record.batch, width=record.box_width, queue=record.queue_depth)
                yield record

    def _append(self, record: Record) -> None:
        self.trace.append(record)
        if self._writer is not None:
            self._writer.write(record)


def _shape(request: Request) -> RequestShape:
    return RequestShape(request.id, len(request.prompt_ids), request.max_new_tokens, request.arrival)
