"""`Explorer`: turn the policy's knobs and watch what the same requests would do. Re-simulated at every change."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from html import escape
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets

from blockserve.core import BlockServeError
from blockserve.studies.diff import diff
from blockserve.studies.what_if import Setting, Source, WhatIf
from blockserve_viz import charts
from blockserve_viz.changes import change_table
from blockserve_viz.controls import Controls
from blockserve_viz.pieces import CodeBox
from blockserve_viz.player import BatchPlayer

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from blockserve.simulation.cost import CostModel
    from blockserve.tracing import Trace

_PLOTLY = "application/vnd.plotly.v1+json"

Chart = Callable[[Mapping[str, "Trace"]], "go.Figure"]


def _last(chart: Callable[[Trace], go.Figure], traces: Mapping[str, Trace]) -> go.Figure:
    """A chart of one trace: of the present setting."""
    return chart(list(traces.values())[-1])


CHARTS: Mapping[str, Chart] = {
    "Over time": charts.batch_over_time,
    "Work": charts.waste_bars,
    "Capacity": charts.capacity,
    "Latency": charts.latency_violins,
    "Requests": partial(_last, charts.gantt),
    "Steps": partial(_last, charts.steps_heatmap),
}


class Explorer(widgets.VBox):
    """Controls, what they change against the start, the player, charts, and the code that does the same.

    ``sources``: a `Profile`, or a recorded `Trace`; or several of one kind, recorded under other block lengths or
    suffixes, which then have controls of their own. ``cost``, ``preset``, ``seed`` and ``options`` as for
    `blockserve.studies.what_if.WhatIf`.

    ``trace`` is the present run and ``setting`` what it ran under; ``start`` and ``start_trace`` those that it is
    compared with; ``controls`` the widgets by name: set a value and everything follows. ``code`` has the lines.
    A setting under which some request could never be served is refused with the reason, and the picture stays.
    """

    def __init__(
        self,
        *sources: Source,
        cost: CostModel | None = None,
        preset: str = "blockserve-budget",
        seed: int = 0,
        **options: Any,
    ) -> None:
        self.what_if = WhatIf(*sources, cost=cost, preset=preset, seed=seed, **options)
        self.start = self.setting = self.what_if.start
        self.start_trace = self.trace = self.what_if.run(self.start)
        self._panel = Controls(self.what_if, self._changed)
        self.controls = self._panel.widgets
        self.player = BatchPlayer(self.trace)
        self._status, self._change, self._code = widgets.HTML(), widgets.HTML(), CodeBox()
        self._runs, self._stale = 0, set(CHARTS)
        self._outputs = {name: widgets.Output(layout={"min_height": "440px"}) for name in CHARTS}
        self._tabs = widgets.Tab([*self._outputs.values()], titles=list(CHARTS))
        self._tabs.observe(lambda _: self._draw_chart(), "selected_index")
        top = widgets.HBox([self._panel.box, widgets.VBox([self._change, self._status])])
        super().__init__([top, self.player, self._tabs, self._code])
        self.add_class("bs-explorer")
        self._draw()

    @property
    def code(self) -> str:
        """Lines of Python that reproduce the present run as ``result``; see `WhatIf.code`."""
        return self._code.code

    def reset(self) -> None:
        """Back to the start."""
        self._panel.set(self.start)

    def _changed(self, setting: Setting) -> None:
        """Re-simulate under ``setting`` and redraw; a refused setting leaves everything as it was."""
        try:
            trace = self.start_trace if setting == self.start else self.what_if.run(setting)
        except BlockServeError as error:
            self._say(f"<b>Not possible:</b> {escape(str(error))}", "refused")
            return
        self.setting, self.trace = setting, trace
        self._stale = set(CHARTS)
        self.player.show(trace, cycle=self.player.cycle)
        self._draw()

    def _draw(self) -> None:
        """Everything but the player."""
        self._change.value = change_table(self.start_trace, self.trace)
        self._code.code = self.what_if.code(self.setting)
        self._draw_chart()
        self._runs += 1
        self._say(self._parting(), "drawn")

    def _draw_chart(self) -> None:
        """The chart on the open tab, if it shows an older run: the others are drawn when they are opened."""
        name = list(CHARTS)[self._tabs.selected_index or 0]
        if name not in self._stale:
            return
        traces = {"start": self.start_trace}
        if self.trace is not self.start_trace:
            traces["now"] = self.trace
        figure = CHARTS[name](traces)
        figure.update_layout(width=None, autosize=True)
        shown = {"data": {_PLOTLY: json.loads(figure.to_json(validate=False))}, "metadata": {}}
        self._outputs[name].outputs = ({"output_type": "display_data", **shown},)
        self._stale.discard(name)

    def _parting(self) -> str:
        """Where the present schedule parts from the start's."""
        if self.trace is self.start_trace:
            return "This is the start. Change a control."
        parting = diff(self.start_trace, self.trace) if len(self.start_trace) and len(self.trace) else None
        return escape(f"Parts from the start in {parting}" if parting else "The schedule is that of the start.")

    def _say(self, html: str, state: str) -> None:
        """One line below the table; ``data-runs`` counts the pictures drawn, for whoever waits for one."""
        place = f'data-testid="explorer-status" data-state="{state}" data-runs="{self._runs}"'
        self._status.value = (
            f'<div role="status" {place} style="max-width:46em;line-height:1.4;margin:4px 10px">{html}</div>'
        )

    def _repr_mimebundle_(self, **kwargs: Any) -> Any:
        """Where widgets cannot run, the table and a still of the batch stand in."""
        bundle = super()._repr_mimebundle_(**kwargs)
        still = self.player._repr_mimebundle_(**kwargs)[0].get("text/html", "")
        return {**bundle, "text/html": change_table(self.start_trace, self.trace) + still}
