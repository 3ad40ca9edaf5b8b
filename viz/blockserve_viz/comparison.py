"""`compare`: two runs side by side on one clock, with running totals between them and a jump to where they part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anywidget
import traitlets

from blockserve.core import TraceError, check_choice, check_int
from blockserve.studies.diff import diff
from blockserve.tracing.trace import Trace
from blockserve_viz.colours import PALETTES
from blockserve_viz.decode import Frames
from blockserve_viz.esm import COMPARISON, module, style
from blockserve_viz.frames import LIMIT, encode
from blockserve_viz.packing import Encoded
from blockserve_viz.saved import write_page
from blockserve_viz.still import frames_svg, telling_cycle

CLOCKS = ("wall", "cycles")


def compare(
    trace_a: Trace,
    trace_b: Trace,
    *,
    names: tuple[str, str] | None = None,
    clock: str = "wall",
    seconds: float = 30.0,
    baseline_slots: int = 8,
) -> Comparison:
    """Two runs side by side: a `Comparison`.

    ``names``: their titles, by default their presets. ``clock``: ``wall`` plays both by time as recorded, ``cycles``
    one cycle of each at a time. ``seconds``: how long it plays, to the end of the longer run. ``baseline_slots``: the
    batch size that the effective compute ratio R refers to (paper, Eq. 2).
    """
    return Comparison(trace_a, trace_b, names=names, clock=clock, seconds=seconds, baseline_slots=baseline_slots)


class Comparison(anywidget.AnyWidget):
    """Plays two traces on one clock; made by `compare`.

    ``place`` is where the clock stands, in seconds or in cycles (``clock``); set either to jump. ``parting`` says at
    which ``cycle`` the two schedules part, ``what`` differs and ``why``; ``note`` says so when they cannot be compared.
    """

    _esm = module(*COMPARISON)
    _css = style("player", "compare")

    data = traitlets.Bytes().tag(sync=True)
    parts = traitlets.List().tag(sync=True)
    parting = traitlets.Dict().tag(sync=True)
    note = traitlets.Unicode("").tag(sync=True)
    baseline_slots = traitlets.Int(8).tag(sync=True)
    colours = traitlets.Dict(PALETTES).tag(sync=True)
    clock = traitlets.Enum(CLOCKS, "wall").tag(sync=True)
    place = traitlets.Float(0.0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    seconds = traitlets.Float(30.0, min=0.1).tag(sync=True)

    def __init__(
        self,
        trace_a: Trace,
        trace_b: Trace,
        *,
        names: tuple[str, str] | None = None,
        clock: str = "wall",
        seconds: float = 30.0,
        baseline_slots: int = 8,
    ) -> None:
        check_choice("clock", clock, CLOCKS)
        check_int("baseline_slots", baseline_slots, 1)
        self.traces = (trace_a, trace_b)
        self._encoded = [encode(trace, LIMIT // 2) for trace in self.traces]
        data, parts = b"", []
        for encoded, name in zip(self._encoded, names or _names(self.traces), strict=True):
            part = {"name": name, "offset": len(data), "length": len(encoded.data)}
            parts.append(part | {"spec": encoded.spec, "meta": encoded.meta})
            data += encoded.data + bytes(-len(encoded.data) % 8)  # aligned, as its columns are
        parting, note = _parting(*self.traces)
        values = {"clock": clock, "seconds": seconds, "baseline_slots": baseline_slots}
        super().__init__(data=data, parts=parts, parting=parting, note=note, **values)

    def to_html(self, path: str | Path, *, title: str = "", force: bool = False) -> Path:
        """Write one HTML file that plays offline. Refuses an existing file unless ``force``."""
        return write_page(self, path, title or " and ".join(p["name"] for p in self.parts), force=force)

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        return {**data, "text/html": "".join(_still(e) for e in self._encoded)}, metadata


def _names(traces: tuple[Trace, Trace]) -> tuple[str, str]:
    first, second = (t.run.preset if t.run else "trace" for t in traces)
    return (first, second) if first != second else (f"{first} (a)", f"{second} (b)")


def _parting(first: Trace, second: Trace) -> tuple[dict[str, Any], str]:
    """Where the schedules part, or why that cannot be said."""
    try:
        parting = diff(first, second)
    except TraceError as error:
        return {}, f"No common schedule to compare: {error}."
    except (AttributeError, KeyError):  # a trace without its run record cannot explain itself
        return {}, "One of the traces has lost its run record, so where they part is not known."
    if parting is None:
        return {}, "Both runs follow the same schedule, cycle by cycle."
    return {"cycle": parting.cycle, "what": parting.what, "why": parting.why}, ""


def _still(encoded: Encoded) -> str:
    frames = Frames(encoded)
    return frames_svg(frames, telling_cycle(frames))
