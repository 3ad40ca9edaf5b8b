"""`BatchPlayer`: the paper's Figure 1, moving. A thin widget; the work is in `frames` and ``static/*.js``."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from blockserve.core import BlockServeError, check_choice
from blockserve.tracing import frames as tables
from blockserve.tracing.records import Record
from blockserve.tracing.trace import Trace
from blockserve_viz.colours import PALETTES
from blockserve_viz.decode import Frames
from blockserve_viz.detail import WINDOW, encode_detail
from blockserve_viz.esm import PLAYER, module, style
from blockserve_viz.feed import Deltas, Feed
from blockserve_viz.frames import LIMIT, encode_stays
from blockserve_viz.packing import Encoded
from blockserve_viz.saved import write_page
from blockserve_viz.stays import StayBook, collect_requests, collect_stays, shape_of
from blockserve_viz.still import frames_svg, telling_cycle

if TYPE_CHECKING:
    import pandas as pd

    from blockserve.handle import RunHandle


class BatchPlayer(anywidget.AnyWidget):
    """Plays the batch of ``trace``, cycle by cycle.

    ``cycle`` is the cycle shown, at its end (the boundary): set it to jump; playing writes it back when it pauses.
    ``speed`` is in cycles a second. ``selected`` is the id of a request, or ``""``: click a row, or set it.
    ``quiz`` asks what happens at each boundary; ``score`` counts the answers (``asked``, ``right``). Where widgets
    cannot run (an untrusted notebook, a page that shows notebooks) a still of the batch stands in.

    A run in progress: `follow` a handle, or `append` each cycle of `Engine.cycles`.
    """

    _esm = module(*PLAYER)
    _css = style("player")

    data = traitlets.Bytes().tag(sync=True)
    spec = traitlets.List().tag(sync=True)
    meta = traitlets.Dict().tag(sync=True)
    detail = traitlets.Bytes().tag(sync=True)
    detail_spec = traitlets.List().tag(sync=True)
    detail_meta = traitlets.Dict().tag(sync=True)
    colours = traitlets.Dict(PALETTES).tag(sync=True)
    cycle = traitlets.Int(0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    speed = traitlets.Float(1.0, min=0.01).tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)
    quiz = traitlets.Bool(False).tag(sync=True)
    score = traitlets.Dict({"asked": 0, "right": 0}).tag(sync=True)
    live = traitlets.Enum(["", "append", "follow"], "").tag(sync=True)
    delta = traitlets.Dict().tag(sync=True)

    def __init__(
        self, trace: Trace | None = None, *, cycle: int = 0, speed: float = 1.0, selected: str = "", quiz: bool = False
    ) -> None:
        self._lock = threading.RLock()  # the feed's thread and the notebook's both send
        self._feed: Feed | None = None
        self._handle: RunHandle | None = None
        self._take(Trace() if trace is None else trace)
        super().__init__(**self._whole(cycle), cycle=cycle, speed=speed, quiz=quiz, selected=selected)
        self.on_msg(self._hear)

    # ------------------------------------------------------------------------------------ what is shown

    def show(self, trace: Trace, *, cycle: int = 0) -> None:
        """Show another trace in place of the present one."""
        self._end_feed()
        self._take(trace)
        selected = self.selected if self.selected in self._book.index else ""
        self._send_whole(cycle=cycle, selected=selected)

    def selected_rows(self) -> pd.DataFrame:
        """The rows on screen as `Trace.rows` has them: those of ``cycle``, or of them the selected request's."""
        with self._lock:
            records = self.trace.cycle_records[: self._book.cycles]
        rows = tables.rows(records[self.cycle : self.cycle + 1])
        return rows[rows["id"] == self.selected].reset_index(drop=True) if self.selected else rows

    def to_html(self, path: str | Path, *, title: str = "", force: bool = False) -> Path:
        """Write one HTML file that plays offline, at this cycle and selection. Refuses an existing file."""
        names = (self.meta.get("preset"), self.meta.get("model"))
        return write_page(self, path, title or " on ".join(n for n in names if n) or "Batch", force=force)

    @traitlets.validate("cycle")
    def _inside(self, proposal: Any) -> int:
        """Cycles beyond either end mean that end."""
        book = getattr(self, "_book", None)
        cycles = book.cycles if book else 1
        return max(0, min(proposal["value"], cycles - 1))

    @traitlets.validate("selected")
    def _known(self, proposal: Any) -> str:
        if proposal["value"]:
            check_choice("request", proposal["value"], self._book.index)
        return proposal["value"]

    def _take(self, trace: Trace) -> None:
        self.trace = trace
        self._book = collect_stays(trace, shape_of(trace), collect_requests(trace))

    def _whole(self, cycle: int) -> dict[str, Any]:
        """The traits that hold all that is known; whatever deltas a view has are part of it."""
        sent = encode_stays(self.trace, self._book)
        seq = self._deltas.seq if self._feed else 0
        status = "running" if self._feed else shape_of(self.trace)["status"]
        detail = self._detail(cycle, LIMIT - len(sent.data))
        return {
            "data": sent.data,
            "spec": sent.spec,
            "meta": {**sent.meta, "status": status, "seq": seq},
            "detail": detail.data,
            "detail_spec": detail.spec,
            "detail_meta": detail.meta,
            "delta": {},
        }

    def _send_whole(self, **values: Any) -> None:
        """Send all that is known, and ``values`` with it."""
        with self.hold_sync():
            for name, value in (self._whole(values.get("cycle", self.cycle)) | values).items():
                setattr(self, name, value)

    def _detail(self, around: int, room: int) -> Encoded:
        book = self._book
        cycles, length = self.trace.cycle_records[: book.cycles], book.shape["block_length"]
        return encode_detail(cycles, book.requests, book.index, length, around=around, room=room)

    # ------------------------------------------------------------------------------- a run in progress

    def follow(self, handle: RunHandle) -> BatchPlayer:
        """Show a run that `Engine.start` began, as it goes on; returns at once. Its Stop button ends the run."""
        if self._handle is handle:
            raise BlockServeError("this player follows that run already")
        feed = self._begin_feed(handle.trace, "follow", handle)
        handle.on_cycle(feed.notify)
        return self

    def append(self, record: Record) -> None:
        """Show one more cycle: ``for cycle in engine.cycles(): player.append(cycle)``.

        ``record`` may already be in the player's trace (that of the engine), or of any other kind; an end record ends.
        """
        known = self.trace.records[-1:] + self.trace.cycle_records[-1:]
        if not any(one is record for one in known):
            if self.trace.end is not None:
                raise BlockServeError("this run has ended; show another trace, or make another player")
            if self._feed is None:
                self.trace = Trace(self.trace.records)  # a copy: the one that was given stays as it is
            self.trace.append(record)
        feed = self._feed  # which ends by itself at any time, with the run
        if feed is None and self.trace.end is None:
            feed = self._begin_feed(self.trace, "append")
        if feed is not None:
            feed.notify()

    def finish(self) -> None:
        """End a run that was appended by hand; one with an end record finishes by itself."""
        self._end_feed()

    def _begin_feed(self, trace: Trace, kind: str, handle: RunHandle | None = None) -> Feed:
        self._end_feed()
        self.trace = trace
        past = Trace(list(trace.records))  # what is there now; the run goes on while this is prepared
        shape = shape_of(past)
        self._book: StayBook = collect_stays(past, shape, collect_requests(past))
        self._deltas = Deltas(trace, self._book, past)
        self._feed, self._handle = Feed(trace, self._tell, self._finish), handle
        feed = self._feed
        with self._lock:
            self._send_whole(live=kind, playing=True)
        feed.start()
        return feed

    def _tell(self) -> None:
        with self._lock:  # the stays grow here, and `_send_whole` reads them
            self.delta = self._deltas.next() or self.delta

    def _finish(self) -> None:
        """The run is over: send it whole, once, so that a saved notebook holds it."""
        with self._lock:
            self._feed = self._handle = None
            self._take(self.trace)
            self._send_whole(live="", playing=False)

    def _end_feed(self) -> None:
        if self._feed is not None:
            self._feed.close()

    def _hear(self, _: Any, message: Any, buffers: Any) -> None:
        """What a view asks for."""
        kind = message.get("type")
        if kind == "stop" and self._handle is not None:
            threading.Thread(target=_stop, args=[self._handle], daemon=True).start()  # a boundary may be seconds away
        elif kind == "whole" and self._feed is not None:
            with self._lock:
                self._send_whole()
        elif kind == "detail":
            with self._lock, self.hold_sync():
                sent = self._detail(int(message["cycle"]), WINDOW)
                self.detail, self.detail_spec, self.detail_meta = sent.data, sent.spec, sent.meta

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        frames = Frames(Encoded(self.data, self.spec, self.meta))
        still = frames_svg(frames, self.cycle or telling_cycle(frames))
        return {**data, "text/html": still}, metadata


def _stop(handle: RunHandle) -> None:
    try:
        handle.stop()
    except BaseException:  # what the run raised is for whoever waits for it, not for a button
        return
