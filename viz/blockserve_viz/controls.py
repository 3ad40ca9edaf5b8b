"""The explorer's controls: widgets for each part of a `Setting`, and back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import ipywidgets as widgets

from blockserve.scheduling import FixedSlots, TokenBudget
from blockserve.scheduling.admission import FILLS
from blockserve.scheduling.policy import QUANTA
from blockserve.scheduling.queue import ORDERS
from blockserve.studies.what_if import Setting, WhatIf
from blockserve_viz.pieces import NumberSlider

BOUNDS = {"token budget β": "budget", "slots": "slots"}
WIDE = {"style": {"description_width": "6.5em"}, "layout": {"width": "26em"}}


class Controls:
    """``widgets`` by name, laid out in ``box``; ``changed`` is called with the new setting, once a change.

    ``block_length`` and ``suffix`` are there only if the sources were recorded under several.
    """

    def __init__(self, what_if: WhatIf, changed: Callable[[Setting], None]) -> None:
        self._start, self._changed, self._quiet = what_if.start, changed, False
        self.widgets = _policy_widgets(what_if) | _source_widgets(what_if)
        self._reset = widgets.Button(description="Back to the start", tooltip="Set every control as it was")
        self._reset.on_click(lambda _: self.set(self._start))
        self.box = widgets.VBox([*self.widgets.values(), self._reset], layout={"min_width": "28em"})
        self.set(self._start, tell=False)
        for widget in self.widgets.values():
            widget.observe(self._hear, "value")

    def set(self, setting: Setting, *, tell: bool = True) -> None:
        """Set every control to ``setting``."""
        self._quiet = True
        try:
            for name, value in _values(setting).items():
                if name in self.widgets and value is not None:
                    self.widgets[name].value = value
        finally:
            self._quiet = False
        self._enable()
        if tell:
            self._changed(setting)

    @property
    def setting(self) -> Setting:
        """What the controls say; parts without a control are the start's."""
        value = {name: widget.value for name, widget in self.widgets.items()}
        bound = TokenBudget(value["budget"]) if value["bound"] == "budget" else FixedSlots(value["slots"])
        parts = {name: value[name] for name in ("order", "fill", "quantum")}
        return Setting(
            replace(self._start.policy, bound=bound, **parts),
            value.get("block_length", self._start.block_length),
            value.get("suffix", self._start.suffix),
            value["rate"] or None,
        )

    def _hear(self, _: Any) -> None:
        if not self._quiet:
            self._enable()
            self._changed(self.setting)

    def _enable(self) -> None:
        """The bound that is not in use cannot be set."""
        for name in BOUNDS.values():
            self.widgets[name].disabled = self.widgets["bound"].value != name


def _values(setting: Setting) -> dict[str, Any]:
    """A setting as values of the controls; ``None`` leaves a control as it is."""
    policy = setting.policy
    slots = policy.bound.slots if isinstance(policy.bound, FixedSlots) else None
    return {
        "bound": "budget" if slots is None else "slots",
        "budget": policy.budget,
        "slots": slots,
        "order": policy.order,
        "fill": policy.fill,
        "quantum": policy.quantum,
        "rate": setting.rate or 0.0,
        "block_length": setting.block_length,
        "suffix": setting.suffix,
    }


def _policy_widgets(what_if: WhatIf) -> dict[str, Any]:
    policy, least = what_if.start.policy, what_if.smallest_budget()
    budget = max(policy.budget or 8 * least, least)
    slots = policy.bound.slots if isinstance(policy.bound, FixedSlots) else 8
    length, most = what_if.start.block_length, max(4 * budget, 8 * least)
    return {
        "bound": widgets.Dropdown(options=BOUNDS, description="bound", **WIDE),
        "budget": NumberSlider(value=budget, min=least, max=most, step=length, description="β (tokens)"),
        "slots": NumberSlider(value=slots, min=1, max=max(64, 2 * slots), description="slots (rows)"),
        "order": widgets.Dropdown(options=list(ORDERS), description="order", **WIDE),
        "fill": widgets.Dropdown(options=list(FILLS), description="fill", **WIDE),
        "quantum": widgets.Dropdown(options=list(QUANTA), description="quantum", **WIDE),
        "rate": widgets.BoundedFloatText(
            0.0,
            min=0.0,
            max=1e6,
            step=0.5,
            description="arrivals/s",
            tooltip="Poisson arrivals; 0: as the source has them",
            **WIDE,
        ),
    }


def _source_widgets(what_if: WhatIf) -> dict[str, Any]:
    """A choice of block length and of suffix, where there is one."""
    found = {}
    columns = zip(("block_length", "suffix"), zip(*what_if.sources, strict=True), strict=True)
    for name, values in columns:
        known = list(dict.fromkeys(values))
        if len(known) > 1:
            options = [(str(value), value) for value in known]
            found[name] = widgets.Dropdown(options=options, description=name.replace("_", " "), **WIDE)
    return found
