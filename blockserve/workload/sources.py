"""Workloads: requests under a name, from the built-in tasks or from a file of a user's own prompts."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from blockserve.core import InvalidRequestError, Request, check_int, commit_rule_to_dict, unknown_name
from blockserve.reprs import html_table, sparkline
from blockserve.workload.arrivals import Arrivals, ClosedLoop, parse_arrivals
from blockserve.workload.benchmarks.catalogue import BENCHMARKS
from blockserve.workload.benchmarks.prompts import benchmark_requests
from blockserve.workload.lengths import Lengths, read_lengths
from blockserve.workload.problems import Grade, Split
from blockserve.workload.tasks import TASKS, TaskFamily, problems, resolve

JSONL_FIELDS = ("id", "prompt", "max_new_tokens")


@dataclass(frozen=True)
class Workload:
    """Requests in their order of submission. Ids are unique; prompts are text, limits may be left to the engine.

    ``closed_loop``: requests are not sent at their arrival but by that many clients, each when it has its answer.
    """

    name: str
    requests: tuple[Request, ...]
    closed_loop: ClosedLoop | None = None

    def __post_init__(self) -> None:
        seen: set[str] = set()
        for request in self.requests:
            if request.id in seen:
                raise InvalidRequestError(f"workload {self.name!r} holds two requests with id {request.id!r}")
            seen.add(request.id)

    @classmethod
    def tasks(
        cls,
        names: str | Sequence[str] = "arithmetic",
        n: int = 64,
        seed: int = 0,
        *,
        max_new_tokens: int | None = None,
        split: Split = "test",
    ) -> Workload:
        """``n`` problems of each task family; ``names`` is ``"arithmetic"``, ``"a,b"``, ``"all"`` or a sequence.

        The same arguments give the same workload on every machine, and a larger ``n`` only adds to each family.
        Limits are each family's own unless ``max_new_tokens`` is given.
        Tags hold ``task``, ``reference`` (the worked answer) and ``grading`` (what the grader needs). Raises
        `UnknownNameError` for an unknown family or split, `ConfigError` for a bad ``n`` or ``seed``.
        """
        families = resolve(names)
        requests = [
            Request(
                id=f"{family.name}-{i:04d}",
                prompt=problem.prompt,
                max_new_tokens=family.max_new_tokens if max_new_tokens is None else max_new_tokens,
                seed=_request_seed(family, seed, i),
                tags={"task": family.name, "reference": problem.answer, "grading": dict(problem.data)},
            )
            for family in families
            for i, problem in enumerate(problems(family, n, seed, split))
        ]
        return cls(",".join(family.name for family in families), tuple(requests))

    @classmethod
    def from_jsonl(cls, path: str | Path, *, max_new_tokens: int | None = None) -> Workload:
        """Prompts of a user's own: one JSON object a line with ``id``, ``prompt`` and perhaps ``max_new_tokens``.

        ``max_new_tokens`` given here holds for the lines that have none. Blank lines are passed over. Raises
        `InvalidRequestError` naming the file, the line and what is wrong with it.
        """
        path = Path(path)
        first_line: dict[str, int] = {}
        requests = []
        for number, line in _lines(path):
            where = f"{path}, line {number}"
            fields = _parse(line, where)
            if fields["id"] in first_line:
                raise InvalidRequestError(f"{where}: id {fields['id']!r} was used in line {first_line[fields['id']]}")
            first_line[fields["id"]] = number
            limit = fields.get("max_new_tokens")
            limit = max_new_tokens if limit is None else limit
            requests.append(Request(fields["id"], fields["prompt"], max_new_tokens=limit))
        if not requests:
            raise InvalidRequestError(f'{path} holds no prompts; write one {{"id": ..., "prompt": ...}} a line')
        return cls(path.stem, tuple(requests))

    @classmethod
    def benchmark(
        cls,
        name: str,
        path: str | Path | None = None,
        *,
        shots: int | None = None,
        exemplars: str | Path | None = None,
        n: int | None = None,
        seed: int = 0,
        max_new_tokens: int | None = None,
    ) -> Workload:
        """One of the paper's benchmarks: ``gsm8k``, ``humaneval``, ``mbpp``, ``math``, ``truthfulqa``.

        ``path``: the public file in its own form (or a folder of them); ``None``: fetched by the package ``datasets``,
        if it is installed. ``shots`` worked examples come before each problem (5, 0, 3, 4, 0, as in the paper), drawn
        for each by ``seed`` from ``exemplars``: a file of the same form; without one, the training split. The first
        ``n`` problems, or all. Limits are the paper's (256; MATH 512) unless ``max_new_tokens`` is given.

        Final answers are graded exactly (GSM8K, MATH), programs by running their tests (HumanEval, MBPP: see
        `blockserve.workload.sandbox`, a guard against accidents and no security boundary), TruthfulQA by the nearest
        reference, which is **not** the paper's judge, a language model. Raises `InvalidRequestError` naming the file,
        the line and the fault, `ConfigError` where exemplars or the file itself are missing.
        """
        requests = benchmark_requests(
            name, path, shots=shots, exemplars=exemplars, n=n, seed=seed, max_new_tokens=max_new_tokens
        )
        return cls(name, requests)

    @classmethod
    def from_trace(cls, trace: str | Path | Lengths, *, seed: int = 0) -> Workload:
        """Requests with the arrivals and lengths of a length trace (`blockserve.workload.lengths`): random tokens as
        prompts, outputs as limits. Run it with ``eos="ignore"`` to write exactly as many blocks as were traced.

        ``trace``: a path, or `read_lengths(path)` after ``window``, ``at_rate``, ``at_most``, ``first``.
        """
        lengths = trace if isinstance(trace, Lengths) else read_lengths(trace)
        columns = zip(
            lengths.arrival.tolist(), lengths.prompt_tokens.tolist(), lengths.output_tokens.tolist(), strict=True
        )
        requests = (
            Request(f"{i:06d}", prompt_tokens=p, max_new_tokens=g, arrival=t, seed=seed + i)
            for i, (t, p, g) in enumerate(columns)
        )
        return cls(lengths.name, tuple(requests))

    def arriving(self, arrivals: Arrivals | str, seed: int = 0) -> Workload:
        """The same requests in the same order, arriving by a process or by its text (``"poisson:3"``)."""
        process = parse_arrivals(arrivals) if isinstance(arrivals, str) else arrivals
        if isinstance(process, ClosedLoop):
            now = tuple(replace(r, arrival=0.0) for r in self.requests)
            return replace(self, requests=now, closed_loop=process)
        times = process.times(len(self), seed).tolist()
        moved = tuple(replace(r, arrival=t) for r, t in zip(self.requests, times, strict=True))
        return replace(self, requests=moved, closed_loop=None)

    def grade(self, request_id: str, text: str) -> Grade | None:
        """Judge the answer ``text`` to a request; ``None`` when its task has no grader."""
        if request_id not in self._by_id:
            raise InvalidRequestError(f"workload {self.name!r} has no request {request_id!r}")
        tags = self._by_id[request_id].tags
        task = tags.get("task", "")
        family = TASKS.get(task) or BENCHMARKS.get(task)
        return None if family is None or "grading" not in tags else family.grade(text, tags["grading"])

    def digest(self) -> str:
        """Twelve hex digits of a SHA-256 over all that the requests hold, in their order (the name left out)."""
        sha = hashlib.sha256()
        for request in self.requests:
            sha.update(json.dumps(_canonical(request), sort_keys=True).encode() + b"\n")
        return sha.hexdigest()[:12]

    def shuffled(self, seed: int) -> Workload:
        """The same requests in another order."""
        check_int("seed", seed, 0)
        order = np.random.default_rng(seed).permutation(len(self.requests))
        return replace(self, requests=tuple(self.requests[i] for i in order))

    def __repr__(self) -> str:
        closed = f", {self.closed_loop}" if self.closed_loop else ""
        return f"Workload({self.name!r}, {len(self):,} requests{closed})"

    def _repr_html_(self) -> str:
        sizes = [r.prompt_tokens or len(r.prompt_ids or ()) or len(r.prompt) for r in self.requests]
        lines = {"prompts": sparkline(sizes, "length"), "arrivals": sparkline([r.arrival for r in self.requests], "s")}
        values = {"requests": len(self), "digest": self.digest(), "closed loop": self.closed_loop}
        return html_table(f"Workload {self.name}", values, lines)

    def __len__(self) -> int:
        return len(self.requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self.requests)

    @cached_property
    def _by_id(self) -> dict[str, Request]:
        return {request.id: request for request in self.requests}


def _request_seed(family: TaskFamily, seed: int, index: int) -> int:
    """A seed of the request's own, whatever else is in the workload."""
    return int(np.random.SeedSequence([seed, index, *family.name.encode()]).generate_state(1)[0])


def _canonical(request: Request) -> dict[str, Any]:
    values = dict(vars(request))
    values["tags"] = dict(request.tags)
    values["rule"] = None if request.rule is None else commit_rule_to_dict(request.rule)
    return values


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a UTF-8 file that are not blank."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise InvalidRequestError(f"no prompt file at {path}") from None
    except UnicodeDecodeError as error:
        raise InvalidRequestError(f"{path} is not UTF-8 text: byte {error.start} cannot be read") from None
    except OSError as error:
        raise InvalidRequestError(f"cannot read the prompt file {path}: {error.strerror}") from None
    # Split at newlines alone: JSON strings may hold other line separators of Unicode as they are.
    return ((i, line) for i, line in enumerate(text.split("\n"), start=1) if line.strip())


def _parse(line: str, where: str) -> dict[str, Any]:
    """The checked fields of one line."""
    try:
        fields = json.loads(line)
    except (json.JSONDecodeError, RecursionError) as error:
        raise InvalidRequestError(f"{where}: not valid JSON ({error})") from None
    if not isinstance(fields, dict):
        raise InvalidRequestError(f"{where}: must be a JSON object with id and prompt, got {line.strip()[:40]}")
    for key in fields:
        if key not in JSONL_FIELDS:
            raise InvalidRequestError(f"{where}: {unknown_name('field', key, JSONL_FIELDS)}")
    for key in ("id", "prompt"):
        if key not in fields:
            raise InvalidRequestError(f"{where}: field {key!r} is missing")
        if not isinstance(fields[key], str) or not fields[key].strip():
            raise InvalidRequestError(f"{where}: {key} must be text and not empty, got {fields[key]!r}")
        if any("\ud800" <= c <= "\udfff" for c in fields[key]):
            raise InvalidRequestError(
                f"{where}: {key} holds half of a surrogate pair, which is no text: {fields[key]!r}"
            )
    limit = fields.get("max_new_tokens")
    if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
        raise InvalidRequestError(f"{where}: max_new_tokens must be a whole number of at least 1, got {limit!r}")
    return fields
