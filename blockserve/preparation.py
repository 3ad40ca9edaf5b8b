"""From requests as a user states them to requests a model can serve: ids, limits, and who must be refused."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from blockserve.core import InvalidRequestError, Request, RequestShape
from blockserve.scheduling import Scheduler
from blockserve.workload.sources import Workload

if TYPE_CHECKING:
    from blockserve.execution.model import DiffusionModel


def prepare(
    workload: Workload, model: DiffusionModel, scheduler: Scheduler, max_new_tokens: int, skip_invalid: bool
) -> tuple[list[Request], list[tuple[Request, str]]]:
    """Requests with ids and limits (``max_new_tokens`` where they state none); those that cannot be served, with why.

    Raises `InvalidRequestError` naming every one that cannot, unless ``skip_invalid``.
    """
    prepared: list[Request] = []
    rejected: list[tuple[Request, str]] = []
    for request in workload:
        request = replace(request, max_new_tokens=request.max_new_tokens or max_new_tokens)
        try:
            encoded = encode(request, model)
            scheduler.check_request(shape_of(encoded))
            prepared.append(encoded)
        except InvalidRequestError as error:
            rejected.append((replace(request, prompt_ids=request.prompt_ids or ()), str(error)))
    if rejected and not skip_invalid:
        lines = [message for _, message in rejected]
        raise InvalidRequestError(
            lines[0] if len(lines) == 1 else f"{len(lines)} requests cannot be served:\n  " + "\n  ".join(lines)
        )
    return prepared, rejected


def encode(request: Request, model: DiffusionModel) -> Request:
    """Fill in the prompt ids; reject what no model can continue."""
    ids = request.prompt_ids
    if ids is None and request.prompt_tokens is not None:
        ids = random_prompt(model, request.prompt_tokens, request.seed)
    if ids is None:
        if model.tokenizer is None:
            raise InvalidRequestError(f"model {model.name!r} has no tokenizer; request {request.id!r} needs prompt_ids")
        try:
            ids = tuple(model.tokenizer.encode(request.prompt))
        except InvalidRequestError as error:  # a letter outside the model's alphabet
            raise InvalidRequestError(f"request {request.id!r}: {error}") from None
    if request.stop and model.tokenizer is None:
        raise InvalidRequestError(f"request {request.id!r} has stop strings, but the model has no tokenizer")
    if not ids:
        raise InvalidRequestError(f"request {request.id!r} has an empty prompt; give at least one token")
    if model.mask_id in ids:
        place = ids.index(model.mask_id)
        raise InvalidRequestError(
            f"request {request.id!r} holds the mask token ({model.mask_id}) at position {place}; "
            "a prompt must hold none, masks mark what the model is to write"
        )
    size = model.network.config.vocab_size
    if min(ids) < 0 or max(ids) >= size:
        raise InvalidRequestError(f"request {request.id!r} holds a token id outside 0 … {size - 1}")
    return replace(request, prompt_ids=tuple(ids))


def random_prompt(model: DiffusionModel, tokens: int, seed: int) -> tuple[int, ...]:
    """``tokens`` ordinary tokens (no mask, no end, none that is banned), for workloads that know only lengths."""
    special = {*model.banned_ids, *model.end_ids, model.pad_id}
    ordinary = [i for i in range(model.network.config.vocab_size) if i not in special]
    return tuple(np.random.default_rng(seed).choice(ordinary, tokens).tolist())


def shape_of(request: Request) -> RequestShape:
    """What the scheduler sees of a prepared request."""
    return RequestShape(request.id, len(request.prompt_ids), request.max_new_tokens, request.arrival)
