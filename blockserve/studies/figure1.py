"""The paper's Figure 1 on demand: its two examples in small numbers, served by the real scheduler.

What each request writes is scripted (there is no model), what happens to it is Algorithm 1's doing. Block length 4.

*Example 1, continuous batching* (β 108):

    cycle 1   1 ████████████████████████ b0 b1     3 × 32 = 96    a fourth row: 4 × 32 = 128 > 108
              2       ██████████████████ b0 b1
              3             ████████████ b0 b1     its last block: evicted
    cycle 2   4                   ██████ b0        refills the slot of 3, padded to the box: 3 × 36 = 108

*Example 2, dynamic batch adjustment* (β 72):

    cycle 0   1 ████████████████████ b0            3 × 24 = 72; 1, the widest, ends with its first block
    cycle 1   2           ██████████ b0 b1         the box shrinks to the next widest row, 18, and grows from
              3             ████████ b0 b1         three rows to four: 4 × 18 = 72
              4               ██████ b0            refill
              5                █████ b0            expand
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from blockserve.core import check_choice
from blockserve.studies.scripts import Script, serve_scripts

if TYPE_CHECKING:
    from blockserve.tracing import Trace


@dataclass(frozen=True)
class Example:
    """One panel of the figure: requests "1", "2", … under a token budget. ``key_cycle``: at the end of this cycle
    happens what the panel shows."""

    title: str
    requests: tuple[Script, ...]
    budget: int
    key_cycle: int


EXAMPLES: Mapping[int, Example] = {
    1: Example(
        "continuous batching",
        (Script(24, (2, 3, 2)), Script(18, (3, 2, 4)), Script(12, (2, 3)), Script(6, (4, 2, 3))),
        budget=108,
        key_cycle=1,
    ),
    2: Example(
        "dynamic batch adjustment",
        (Script(20, (3,)), Script(10, (2, 3)), Script(8, (4, 2)), Script(6, (3, 2, 2)), Script(5, (2, 4, 2))),
        budget=72,
        key_cycle=0,
    ),
}


def figure1(example: int = 1) -> Trace:
    """Example 1 or 2 of Figure 1 as a trace: virtual clock, marked as simulated, one second a forward pass.

    What the figure shows happens at the end of cycle ``EXAMPLES[example].key_cycle``.
    """
    check_choice("example of Figure 1", str(example), map(str, EXAMPLES))
    chosen = EXAMPLES[int(example)]
    name = f"Figure 1, example {example}: {chosen.title}"
    return serve_scripts(chosen.requests, name=name, token_budget=chosen.budget)
