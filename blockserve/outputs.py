"""From generated ids to what a user gets: valid text, cut at stop strings, and its grade."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from blockserve.core import Completion
from blockserve.workload.sources import Workload

if TYPE_CHECKING:
    from blockserve.execution.executor import TorchExecutor
    from blockserve.execution.model import DiffusionModel


def completer(executor: TorchExecutor, model: DiffusionModel, workload: Workload) -> Callable[[Completion], Completion]:
    """Adds output, text and grade to a completion, and lets the executor forget the request."""
    requests = {request.id: request for request in workload}

    def complete(completion: Completion) -> Completion:
        if completion.reason == "rejected":
            return completion
        ids = executor.output(completion.request_id)
        executor.remove(completion.request_id)
        text = _valid_text(model, ids, completion.valid_tokens, requests[completion.request_id].stop)
        grade = workload.grade(completion.request_id, text)
        correct = None if grade is None else grade.correct
        return replace(completion, output_ids=ids, generated_tokens=len(ids), text=text, correct=correct)

    return complete


def _valid_text(model: DiffusionModel, ids: Sequence[int], valid_tokens: int, stop: Sequence[str]) -> str:
    """The valid output as text. A stop string may begin inside a token, so it is looked for in the text."""
    if model.tokenizer is None:
        return ""
    if not stop:
        return model.tokenizer.decode(ids[:valid_tokens])
    end = next((place for place, token in enumerate(ids) if token in model.end_ids), len(ids))
    text = model.tokenizer.decode(ids[:end])
    return text[: first_stop(text, stop)]


def first_stop(text: str, stop: Sequence[str]) -> int | None:
    """Where the first stop string begins in ``text``; ``None`` if there is none."""
    return min((place for s in stop if (place := text.find(s)) >= 0), default=None)


def stop_offset(decode: Callable[[Sequence[int]], str], ids: Sequence[int], stop: Sequence[str]) -> int | None:
    """How many of ``ids`` come wholly before the first stop string in their text; ``None`` if there is none."""
    place = first_stop(decode(ids), stop)
    if place is None:
        return None
    return bisect_right(range(len(ids) + 1), place, key=lambda n: len(decode(ids[:n]))) - 1
