"""`AnswerBox`: a field for the answer to an exercise, where a page has no cells to edit."""

from __future__ import annotations

import ast
from html import escape
from typing import Any

import ipywidgets as widgets

from blockserve.studies.exercises import check_exercise

HOW = "a number, or a list such as [2, 3]"


class AnswerBox(widgets.VBox):
    """A field, a button, and what `blockserve.check_exercise` says of what stands in the field.

    ``notebook`` and ``number`` name the exercise. The answer is read as a Python literal and never run.
    """

    def __init__(self, notebook: str, number: int) -> None:
        check_exercise(notebook, number, ...)  # an unknown exercise raises here
        self._exercise = notebook, number
        self.field = widgets.Text(placeholder=HOW, description=f"Answer {number}", layout={"width": "26em"})
        self.button = widgets.Button(description="Check")
        self.verdict = widgets.HTML()
        self.button.on_click(lambda _: self.check())
        super().__init__([widgets.HBox([self.field, self.button]), self.verdict])
        self.add_class("bs-answer")

    def check(self) -> None:
        """Show the verdict on what stands in the field."""
        try:
            answer: Any = ast.literal_eval(self.field.value.strip())
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            self.verdict.value = f"<b>Not understood.</b> Write {HOW}: {escape(repr(self.field.value))} is neither."
            return
        self.verdict.value = check_exercise(*self._exercise, answer)._repr_html_()
