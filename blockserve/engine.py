"""The engine: a model, a policy and a way to decode; runs workloads and leaves traces."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.checkpoints import load_model
from blockserve.clock import WallClock
from blockserve.core import (
    BlockServeError,
    Completion,
    InvalidRequestError,
    Request,
    RequestShape,
    check_choice,
    check_int,
)
from blockserve.manifest import run_record
from blockserve.presets import EngineConfig, resolve
from blockserve.scheduling import Scheduler
from blockserve.session import Hooks, Session
from blockserve.tracing import Trace
from blockserve.tracing.metrics import compare
from blockserve.tracing.recording import request_record
from blockserve.tracing.records import LEVELS, CycleRecord
from blockserve.workload.sources import Workload

if TYPE_CHECKING:
    import pandas as pd

    from blockserve.execution.executor import TorchExecutor
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
        self._session: Session | None = None

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
        workload = as_workload(workload)
        self.submit(workload, trace=trace, force=force, skip_invalid=skip_invalid)
        session = self._session
        try:
            with closing(session.cycles()) as cycles:  # an interrupt between two cycles must end the session too
                for _ in _with_bar(cycles, len(workload), show=progress):
                    pass
        except KeyboardInterrupt:
            warnings.warn("interrupted: what was not finished is recorded as cancelled", stacklevel=2)
        done = session.completions
        return Run(session.trace, tuple(done[r.id] for r in workload if r.id in done))

    def submit(
        self,
        workload: Workload | Iterable[Request],
        *,
        trace: str | Path | None = None,
        force: bool = False,
        skip_invalid: bool = False,
    ) -> None:
        """Check and queue a workload for the next `cycles`. Raises `InvalidRequestError` naming every offender."""
        from blockserve.execution.executor import TorchExecutor

        workload, decode = as_workload(workload), self.config.decode
        scheduler = Scheduler(
            self.config.policy,
            decode.block_length,
            suffix=decode.suffix,
            run_to_limit=decode.eos == "ignore",
            context=self.model.context,
        )
        prepared, rejected = self._prepare(workload, scheduler, skip_invalid)
        detail = self.trace_level == "token"
        executor = TorchExecutor(self.model, decode, self.config.execution, detail=detail)
        tokenizer = self.model.tokenizer
        self._session = Session(
            run_record(self, workload),
            scheduler,
            executor,
            WallClock(),
            hooks=Hooks(_completer(executor, tokenizer, workload), tokenizer.decode if tokenizer else None),
            path=trace,
            force=force,
            check=self.check,
        )
        for request in prepared:
            blocks = scheduler.geometry.blocks(request.max_new_tokens)
            executor.add(request, blocks)
            self._session.submit(shape_of(request), request_record(request, blocks, with_ids=detail))
        for request, message in rejected:
            blocks = scheduler.geometry.blocks(request.max_new_tokens)
            self._session.reject(request_record(request, blocks, with_ids=False), message)

    def cycles(self) -> Iterator[CycleRecord]:
        """Run what was submitted, one block cycle an item. Leaving the loop early cancels the rest."""
        if self._session is None or self._session.closed:
            raise BlockServeError("nothing to run: call submit(workload) before cycles()")
        return self._session.cycles()

    @property
    def trace(self) -> Trace:
        """The trace of the run in progress, or of the last one."""
        if self._session is None:
            raise BlockServeError("there is no trace yet: call run(workload), or submit(workload) and cycles()")
        return self._session.trace

    # ---------------------------------------------------------------------------------------- requests

    def _prepare(
        self, workload: Workload, scheduler: Scheduler, skip_invalid: bool
    ) -> tuple[list[Request], list[tuple[Request, str]]]:
        """Requests with ids and limits; those that cannot be served, with the reason."""
        prepared: list[Request] = []
        rejected: list[tuple[Request, str]] = []
        for request in workload:
            request = replace(request, max_new_tokens=request.max_new_tokens or self.max_new_tokens)
            try:
                encoded = self._encode(request)
                scheduler.check_request(shape_of(encoded))
                prepared.append(encoded)
            except InvalidRequestError as error:
                rejected.append((replace(request, prompt_ids=request.prompt_ids or ()), str(error)))
        if rejected and not skip_invalid:
            lines = [message for _, message in rejected]
            raise InvalidRequestError(
                lines[0] if len(lines) == 1 else f"{len(lines)} requests cannot be served:\n  " + "\n  ".join(lines)
            )
        return prepared, rejected

    def _encode(self, request: Request) -> Request:
        """Fill in the prompt ids; reject what no model can continue."""
        model, ids = self.model, request.prompt_ids
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
        return replace(request, prompt_ids=tuple(ids))


def as_workload(requests: Workload | Iterable[Request]) -> Workload:
    """A workload as it is; plain requests under the name ``requests``."""
    return requests if isinstance(requests, Workload) else Workload("requests", tuple(requests))


def shape_of(request: Request) -> RequestShape:
    """What the scheduler sees of a prepared request."""
    return RequestShape(request.id, len(request.prompt_ids), request.max_new_tokens, request.arrival)


def _completer(executor: TorchExecutor, tokenizer: Any, workload: Workload) -> Any:
    """Adds output, text and grade to a completion, and lets the executor forget the request."""

    def complete(completion: Completion) -> Completion:
        if completion.reason == "rejected":
            return completion
        ids = executor.output(completion.request_id)
        executor.remove(completion.request_id)
        text = tokenizer.decode(ids[: completion.valid_tokens]) if tokenizer else ""
        grade = workload.grade(completion.request_id, text)
        correct = None if grade is None else grade.correct
        return replace(completion, output_ids=ids, generated_tokens=len(ids), text=text, correct=correct)

    return complete


def _with_bar(cycles: Iterator[CycleRecord], total: int, *, show: bool) -> Iterator[CycleRecord]:
    """Pass the cycles through, with a progress bar over requests."""
    from tqdm.auto import tqdm

    with tqdm(total=total, unit="request", disable=not show) as progress:
        for record in cycles:
            progress.update(len(record.evicted))
            progress.set_postfix(rows=record.batch, width=record.box_width, queue=record.queue_depth, refresh=False)
            yield record
