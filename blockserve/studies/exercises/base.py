"""What exercises are made of: a verdict, the table of checks, and the kinds of answers with their messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from blockserve.studies.scripts import Script

if TYPE_CHECKING:
    from blockserve.tracing import Trace


@dataclass(frozen=True)
class Verdict:
    """What a check found; shows itself in a notebook. ``right``: ``None`` for an exercise not answered yet."""

    right: bool | None
    message: str

    def __bool__(self) -> bool:
        return bool(self.right)

    @property
    def _words(self) -> str:
        return {None: "Not answered yet.", True: "✓ Right.", False: "✗ Not yet."}[self.right]

    def __repr__(self) -> str:
        return f"{self._words} {self.message}"

    def _repr_html_(self) -> str:
        edge = {None: "#8a93a3", True: "#2e8b57", False: "#d1495b"}[self.right]
        style = f"border-left:5px solid {edge};padding:6px 12px;margin:4px 0"
        return f'<div style="{style}"><b>{self._words}</b> {escape(self.message)}</div>'


class Wrong(Exception):
    """An answer is wrong; the message says in what."""


Check = Callable[[Any], str]
CHECKS: dict[tuple[str, int], Check] = {}


def exercise(notebook: str, number: int) -> Callable[[Check], Check]:
    def add(check: Check) -> Check:
        CHECKS[notebook, number] = check
        return check

    return add


def whole(answer: Any) -> int:
    if isinstance(answer, bool) or not hasattr(answer, "__index__"):
        raise Wrong(f"A whole number is asked for, and this is {answer!r}.")
    return answer.__index__()


def wholes(answer: Any) -> list[int]:
    if isinstance(answer, (str, bytes, dict)) or not isinstance(answer, Iterable):
        raise Wrong(f"A list of whole numbers is asked for, and this is {answer!r}.")
    return [whole(item) for item in answer]


def ids(answer: Any) -> list[str]:
    """Ids of requests; numbers will do."""
    return [str(item) for item in wholes([int(item) if isinstance(item, str) else item for item in _items(answer)])]


def _items(answer: Any) -> list[Any]:
    return list(answer) if isinstance(answer, Iterable) else [answer]


def equal(given: Any, expected: Any, otherwise: str) -> None:
    if given != expected:
        raise Wrong(otherwise)


def writers(blocks: Sequence[int], prompt: int = 4) -> list[Script]:
    """Requests alike but for how many blocks they write."""
    return [Script(prompt, (2,) * count) for count in blocks]


def prompts(prompts: Sequence[int], blocks: int = 3) -> list[Script]:
    """Requests alike but for their prompts."""
    return [Script(prompt, (2,) * blocks) for prompt in prompts]


def rows_of(trace: Trace, cycle: int) -> list[str]:
    return sorted(row.id for row in trace.cycle_records[cycle].rows)
