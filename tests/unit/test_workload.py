"""Workloads from built-in tasks and from a user's own file."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockserve.core import InvalidRequestError, Request, Threshold, UnknownNameError
from blockserve.workload.sources import Workload
from blockserve.workload.tasks import TASKS, problems


def test_tasks_become_requests():
    workload = Workload.tasks("arithmetic", n=12, seed=3, max_new_tokens=64)
    assert workload.name == "arithmetic" and len(workload) == 12
    assert [r.id for r in workload][:2] == ["arithmetic-0000", "arithmetic-0001"]
    for request in workload:
        assert request.prompt_ids is None and request.max_new_tokens == 64
        assert request.tags["task"] == "arithmetic"
        assert json.loads(json.dumps(request.tags)) == request.tags
        assert workload.grade(request.id, request.tags["reference"]).correct
    assert len({r.seed for r in workload}) == 12
    limits = {r.tags["task"]: r.max_new_tokens for r in Workload.tasks("all", n=1)}
    assert limits == {"arithmetic": 80, "code": 96, "program": 96, "algebra": 160, "facts": 16}


def test_problems_are_unseen_ones_unless_asked_otherwise():
    def told(split):
        return [p.prompt for p in problems(TASKS["arithmetic"], 20, 0, split)]

    assert [r.prompt for r in Workload.tasks(n=20)] == told("test")
    assert [r.prompt for r in Workload.tasks(n=20, split="train")] == told("train")


def test_the_same_arguments_give_the_same_workload():
    assert Workload.tasks(n=16, seed=1) == Workload.tasks("arithmetic", n=16, seed=1)
    assert Workload.tasks(n=64).requests[:16] == Workload.tasks(n=16).requests
    assert Workload.tasks(n=16, seed=1).digest() != Workload.tasks(n=16, seed=2).digest()


def test_the_digest_is_the_same_in_another_process():
    code = "from blockserve.workload.sources import Workload; print(Workload.tasks(n=8, seed=5).digest())"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert other == Workload.tasks(n=8, seed=5).digest() and len(other) == 12


@pytest.mark.parametrize(
    "change",
    [{"prompt": "b"}, {"max_new_tokens": 3}, {"arrival": 1.0}, {"seed": 1}, {"rule": Threshold(0.5)}, {"stop": ("x",)}],
)
def test_the_digest_sees_every_field(change):
    plain = Workload("w", (Request("a", "a"),))
    assert plain.digest() == Workload("other name", (Request("a", "a"),)).digest()
    assert plain.digest() != Workload("w", (Request(**{"id": "a", "prompt": "a"} | change),)).digest()


def test_shuffling_keeps_the_requests():
    workload = Workload.tasks(n=30)
    shuffled = workload.shuffled(1)
    assert shuffled == workload.shuffled(1) != workload
    assert sorted(r.id for r in shuffled) == [r.id for r in workload]
    assert shuffled.digest() != workload.digest()
    assert shuffled.grade("arithmetic-0003", workload.requests[3].tags["reference"]).correct


def test_grading_needs_a_known_request():
    workload = Workload("mine", (Request("a", "hello"), Request("b", "x", tags={"task": "gone"})))
    assert workload.grade("a", "text") is None and workload.grade("b", "text") is None
    with pytest.raises(InvalidRequestError, match="has no request 'c'"):
        workload.grade("c", "text")


def test_ids_are_unique():
    with pytest.raises(InvalidRequestError, match="two requests with id 'a'"):
        Workload("w", (Request("a", "x"), Request("a", "y")))


def test_unknown_names():
    with pytest.raises(UnknownNameError, match=r"Known: .*arithmetic"):
        Workload.tasks("sums")
    with pytest.raises(UnknownNameError, match="split"):
        Workload.tasks(split="validation")


# ------------------------------------------------------------------------------------------ files


def write(tmp_path, text: str | bytes):
    path = tmp_path / "prompts.jsonl"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_a_file_of_prompts(tmp_path):
    lines = '{"id": "a", "prompt": "Hello"}\n\n{"id": "b", "prompt": "zwei\u2028Zeilen", "max_new_tokens": 7}\r\n'
    workload = Workload.from_jsonl(write(tmp_path, "\ufeff" + lines), max_new_tokens=32)
    assert workload.name == "prompts"
    assert [(r.id, r.prompt, r.max_new_tokens) for r in workload] == [("a", "Hello", 32), ("b", "zwei\u2028Zeilen", 7)]
    assert Workload.from_jsonl(str(tmp_path / "prompts.jsonl")).requests[0].max_new_tokens is None
    assert workload.grade("a", "anything") is None


printable = st.text(st.characters(exclude_categories=["Cs"]), min_size=1).filter(str.strip)


@given(st.dictionaries(printable, printable, min_size=1, max_size=5), st.booleans())
def test_any_unicode_prompt_survives(tmp_path_factory, prompts, ascii_only):
    path = tmp_path_factory.getbasetemp() / "any.jsonl"
    lines = [json.dumps({"id": k, "prompt": v}, ensure_ascii=ascii_only) for k, v in prompts.items()]
    path.write_bytes("\n".join(lines).encode())
    assert {r.id: r.prompt for r in Workload.from_jsonl(path)} == prompts


GOOD = '{"id": "a", "prompt": "x"}\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no prompts"),
        ("\n  \n", "holds no prompts"),
        (GOOD + "{oops", "line 2: not valid JSON"),
        (GOOD + "\n[1]", "line 3: must be a JSON object"),
        (GOOD + '{"prompt": "x"}', "line 2: field 'id' is missing"),
        (GOOD + '{"id": "b"}', "line 2: field 'prompt' is missing"),
        (GOOD + '{"id": "b", "prompt": "  "}', "line 2: prompt must be text and not empty, got '  '"),
        (GOOD + '{"id": "b", "prompt": ["x"]}', r"line 2: prompt must be text and not empty, got \['x'\]"),
        (GOOD + '{"id": 3, "prompt": "x"}', "line 2: id must be text and not empty, got 3"),
        (GOOD + '{"id": "b", "prompt": "x", "max_new_tokens": 0}', "line 2: max_new_tokens must be .* got 0"),
        (GOOD + '{"id": "b", "prompt": "x", "max_new_tokens": true}', "line 2: max_new_tokens must be .* got True"),
        (GOOD + '{"id": "b", "prompt": "x", "max_new_tokens": "8"}', "line 2: max_new_tokens must be .* got '8'"),
        (GOOD + '{"id": "b", "prompt": "x", "max_tokens": 8}', "line 2: .*Did you mean 'max_new_tokens'"),
        (GOOD + GOOD, "line 2: id 'a' was used in line 1"),
        (GOOD + '{"id": "b", "prompt": "\\ud800"}', "line 2: prompt holds half of a surrogate pair"),
        (b'{"id": "a", "prompt": "\xff"}', "is not UTF-8 text: byte 23"),
    ],
)
def test_a_bad_file_is_one_clear_message(tmp_path, text, message):
    path = write(tmp_path, text)
    with pytest.raises(InvalidRequestError, match=message) as caught:
        Workload.from_jsonl(path)
    assert str(path) in str(caught.value) and "\n" not in str(caught.value)


def test_no_file(tmp_path):
    with pytest.raises(InvalidRequestError, match="no prompt file at"):
        Workload.from_jsonl(tmp_path / "none.jsonl")
    with pytest.raises(InvalidRequestError, match="cannot read the prompt file"):
        Workload.from_jsonl(tmp_path)


def test_workloads_need_no_torch():
    code = "import sys, blockserve.workload.sources; print([m for m in ('torch', 'tokenizers') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "[]"
