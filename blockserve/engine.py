"""The engine: a model, a policy and a way to decode; runs workloads and leaves traces."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from blockserve.checkpoints import load_model
from blockserve.clock import CLOCKS, make_clock
from blockserve.core import (
    BlockServeError,
    Completion,
    Request,
    check_choice,
    check_int,
)
from blockserve.handle import RunHandle
from blockserve.manifest import run_record
from blockserve.outputs import completer, stop_offset
from blockserve.preparation import prepare, shape_of
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

    def __repr__(self) -> str:
        return f"Run({self.trace!r})"

    def _repr_html_(self) -> str:
        return self.trace._repr_html_()

    @property
    def texts(self) -> dict[str, str]:
        """Valid output text by request id."""
        return {c.request_id: c.text for c in self.completions}


class Engine:
    """A model, a policy and a way to decode.

    ``model``: a built-in name, a checkpoint folder, or a loaded `DiffusionModel`; ``device dtype chat`` as in
    `load_model`. ``preset`` names policy, decode
    and exec config; keyword options override its parts and are recorded: ``order fill quantum reserve
    max_wait_cycles slots token_budget``, ``threshold`` or ``quota`` or ``factor`` or ``rule``, ``block_length cache
    suffix eos temperature``, ``head compaction``. ``max_new_tokens``: limit of requests that state none.
    ``trace_level``: ``summary``, ``cycle`` or ``token``. ``clock``: ``wall``, or ``virtual``, on which only work takes
    time (an idle engine jumps to the next arrival). ``check``: assert the scheduler's invariants every cycle.
    """

    def __init__(
        self,
        model: str | Path | DiffusionModel = "tiny-llada",
        preset: str = "blockserve-budget",
        *,
        device: str | None = None,
        dtype: str | None = None,
        chat: bool = False,
        max_new_tokens: int = DEFAULT_LIMIT,
        trace_level: str = "cycle",
        clock: str = "wall",
        seed: int = 0,
        check: bool = False,
        **options: Any,
    ) -> None:
        config = resolve(preset, options)
        check_choice("trace level", trace_level, LEVELS)
        check_choice("clock", clock, CLOCKS)
        check_int("max_new_tokens", max_new_tokens, 1)
        self.model = (
            load_model(model, device=device, dtype=dtype, chat=chat) if isinstance(model, (str, Path)) else model
        )
        self.config: EngineConfig = self._with_budget(config)
        self.max_new_tokens, self.trace_level, self.clock = max_new_tokens, trace_level, clock
        self.seed, self.check = seed, check
        self._session: Session | None = None

    def _with_budget(self, config: EngineConfig) -> EngineConfig:
        if not config.auto_budget:
            return config
        from blockserve.execution.memory import memory_fit

        return config.with_budget(memory_fit(self.model, config.decode, config.execution).budget)

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
        return _collect(session, workload)

    def start(
        self,
        workload: Workload | Iterable[Request],
        *,
        trace: str | Path | None = None,
        force: bool = False,
        skip_invalid: bool = False,
    ) -> RunHandle:
        """Run a workload in a thread and return at once; the handle watches, cancels and stops it."""
        workload = as_workload(workload)
        self.submit(workload, trace=trace, force=force, skip_invalid=skip_invalid)
        session = self._session
        return RunHandle(session, lambda: _collect(session, workload))

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
        prepared, rejected = prepare(workload, self.model, scheduler, self.max_new_tokens, skip_invalid)
        detail = self.trace_level == "token"
        tokenizer = self.model.tokenizer
        find_stop = partial(stop_offset, tokenizer.decode) if tokenizer else None
        executor = TorchExecutor(self.model, decode, self.config.execution, detail=detail, find_stop=find_stop)
        self._session = Session(
            run_record(self, workload),
            scheduler,
            executor,
            make_clock(self.clock),
            hooks=Hooks(completer(executor, self.model, workload), tokenizer.decode if tokenizer else None),
            path=trace,
            force=force,
            check=self.check,
        )
        sent = []
        for request in prepared:
            blocks = scheduler.geometry.blocks(request.max_new_tokens)
            executor.add(request, blocks)
            sent.append((shape_of(request), request_record(request, blocks, with_ids=detail)))
        if workload.closed_loop is None:
            for shape, record in sent:
                self._session.submit(shape, record)
        else:
            self._session.submit_closed_loop(sent, workload.closed_loop.clients, workload.closed_loop.think)
        for request, message in rejected:
            blocks = scheduler.geometry.blocks(request.max_new_tokens)
            self._session.reject(request_record(request, blocks, with_ids=False), message)

    def cycles(self) -> Iterator[CycleRecord]:
        """Run what was submitted, one block cycle an item. Leaving the loop early cancels the rest."""
        if self._session is None or self._session.closed:
            raise BlockServeError("nothing to run: call submit(workload) before cycles()")
        return self._session.cycles()

    def cancel(self, request_id: str) -> bool:
        """Let a request of the run in progress leave at the next boundary, with what it has written.

        False if it has left already; raises `InvalidRequestError` if it was never submitted.
        """
        if self._session is None:
            raise BlockServeError("nothing is running, so nothing can be cancelled")
        return self._session.cancel(request_id)

    @property
    def trace(self) -> Trace:
        """The trace of the run in progress, or of the last one."""
        if self._session is None:
            raise BlockServeError("there is no trace yet: call run(workload), or submit(workload) and cycles()")
        return self._session.trace


def as_workload(requests: Workload | Iterable[Request]) -> Workload:
    """A workload as it is; plain requests under the name ``requests``."""
    return requests if isinstance(requests, Workload) else Workload("requests", tuple(requests))


def _collect(session: Session, workload: Workload) -> Run:
    """Trace and completions, the latter in the order of the workload."""
    done = session.completions
    return Run(session.trace, tuple(done[r.id] for r in workload if r.id in done))


def _with_bar(cycles: Iterator[CycleRecord], total: int, *, show: bool) -> Iterator[CycleRecord]:
    """Pass the cycles through, with a progress bar over requests."""
    from tqdm.auto import tqdm

    with tqdm(total=total, unit="request", disable=not show) as progress:
        for record in cycles:
            progress.update(len(record.evicted))
            progress.set_postfix(rows=record.batch, width=record.box_width, queue=record.queue_depth, refresh=False)
            yield record
