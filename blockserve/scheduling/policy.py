"""`SchedulingPolicy`: when work is done, never which tokens."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Literal

from blockserve.core import ConfigError, check_choice, check_int
from blockserve.reprs import html_table, readable
from blockserve.scheduling.admission import FILLS, Bound, FixedSlots, TokenBudget
from blockserve.scheduling.queue import ORDERS

QUANTA = ("block", "request")


@dataclass(frozen=True)
class SchedulingPolicy:
    """Order, bound, fill and quantum, combined freely.

    ``quantum``: ``block`` schedules at every block boundary; ``request`` is static batching, a group admitted
    together and the next one when all of it has left. ``reserve`` admits only what fits at every future block
    even if nothing ends early, so that nothing is ever preempted. ``max_wait_cycles``: a request that has waited
    that long stops all other admissions until it is in.
    """

    order: str = "longest_first"
    bound: Bound = FixedSlots(8)
    fill: str = "sand"
    quantum: Literal["block", "request"] = "block"
    reserve: bool = False
    max_wait_cycles: int | None = None

    def __post_init__(self) -> None:
        check_choice("order", self.order, ORDERS)
        check_choice("fill", self.fill, FILLS)
        check_choice("quantum", self.quantum, QUANTA)
        if not isinstance(self.bound, (TokenBudget, FixedSlots)):
            raise ConfigError(f"bound must be TokenBudget(tokens) or FixedSlots(slots), got {self.bound!r}")
        if not isinstance(self.reserve, bool):
            raise ConfigError(f"reserve must be True or False, got {self.reserve!r}")
        if self.max_wait_cycles is not None:
            check_int("max_wait_cycles", self.max_wait_cycles, 1)

    def _repr_html_(self) -> str:
        values = self.to_dict()
        values["bound"] = ", ".join(f"{kind} {readable(size)}" for kind, size in values["bound"].items())
        return html_table("SchedulingPolicy", values)

    @property
    def reserves(self) -> bool:
        """A token budget cannot preempt within a group, so ``request`` with it implies ``reserve``."""
        return self.reserve or (self.quantum == "request" and isinstance(self.bound, TokenBudget))

    @property
    def budget(self) -> int | None:
        """β in tokens; ``None`` under slots."""
        return self.bound.tokens if isinstance(self.bound, TokenBudget) else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, the form used in traces; the bound as ``{"slots": n}`` or ``{"budget": β}``."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return values | {"bound": {"budget": self.budget} if self.budget is not None else {"slots": self.bound.slots}}
