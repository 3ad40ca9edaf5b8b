"""`BatchPlayer`: the paper's Figure 1, moving. A thin widget; the work is in `frames` and ``static/player.js``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import anywidget
import traitlets

from blockserve_viz.colours import PALETTES
from blockserve_viz.decode import Frames
from blockserve_viz.frames import Encoded, encode
from blockserve_viz.still import frames_svg, telling_cycle

if TYPE_CHECKING:
    from blockserve.tracing.trace import Trace

_STATIC = Path(__file__).parent / "static"


class BatchPlayer(anywidget.AnyWidget):
    """Plays the batch of ``trace``, cycle by cycle.

    ``cycle`` is the cycle shown, at its end (the boundary): set it to jump; playing writes it back when it pauses.
    ``speed`` is in cycles a second. ``selected`` is the id of the request clicked, or ``""``. Where widgets cannot
    run (an untrusted notebook, a page that shows notebooks) a still of the batch stands in.
    """

    _esm = _STATIC / "player.js"
    _css = _STATIC / "player.css"

    data = traitlets.Bytes().tag(sync=True)
    spec = traitlets.List().tag(sync=True)
    meta = traitlets.Dict().tag(sync=True)
    colours = traitlets.Dict(PALETTES).tag(sync=True)
    cycle = traitlets.Int(0).tag(sync=True)
    playing = traitlets.Bool(False).tag(sync=True)
    speed = traitlets.Float(1.0, min=0.01).tag(sync=True)
    selected = traitlets.Unicode("").tag(sync=True)

    def __init__(self, trace: Trace, *, cycle: int = 0, speed: float = 1.0) -> None:
        sent = encode(trace)
        super().__init__(data=sent.data, spec=sent.spec, meta=sent.meta, cycle=cycle, speed=speed)

    @traitlets.validate("cycle")
    def _inside(self, proposal: Any) -> int:
        """Cycles beyond either end mean that end."""
        return max(0, min(proposal["value"], self.meta.get("cycles", 1) - 1))

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        bundle = super()._repr_mimebundle_(**kwargs)
        if bundle is None:
            return None
        data, metadata = bundle if isinstance(bundle, tuple) else (bundle, {})
        frames = Frames(Encoded(self.data, self.spec, self.meta))
        still = frames_svg(frames, self.cycle or telling_cycle(frames))
        return {**data, "text/html": still}, metadata
