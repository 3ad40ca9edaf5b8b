"""The five benchmarks: how each reads its rows, how a prompt is put together, the paper's counts, and its grader.

The templates are our own. Numbers obtained with other prompts are not comparable to the last percent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from blockserve.core import InvalidRequestError
from blockserve.workload.benchmarks.answers import RESULT_MARK, grade_number, grade_truthful, numbers
from blockserve.workload.benchmarks.latex import boxed, grade_boxed
from blockserve.workload.benchmarks.programs import grade_completion, grade_program
from blockserve.workload.benchmarks.rows import Row
from blockserve.workload.problems import Grade


@dataclass(frozen=True)
class Item:
    """One problem: what fills a template (``question``, and ``tests`` where they are shown), the reference as an
    exemplar shows it, and what the grader needs (JSON-able)."""

    question: str
    reference: str
    grading: Mapping[str, Any]
    tests: str = ""


@dataclass(frozen=True)
class Template:
    """``ask`` leads up to the answer, with ``{question}`` and ``{tests}``; an exemplar is ``ask``, ``lead``, the
    reference and ``end``. ``hint`` comes first where no exemplar shows the form of an answer; ``stop`` begins what a
    model writes when it goes on to a problem of its own."""

    ask: str
    lead: str = ""
    end: str = "\n\n"
    hint: str = ""
    stop: tuple[str, ...] = ()

    def query(self, item: Item) -> str:
        return self.ask.format(question=item.question, tests=item.tests)

    def exemplar(self, item: Item) -> str:
        return f"{self.query(item)}{self.lead}{item.reference}{self.end}"


@dataclass(frozen=True)
class Hub:
    """Where the ``datasets`` package finds a benchmark: its name, configuration, test split and split of exemplars."""

    dataset: str
    config: str
    test: str = "test"
    exemplars: str = "train"


@dataclass(frozen=True)
class Benchmark:
    """``shots`` and ``max_new_tokens`` are the paper's. ``runs_code``: its grader runs programs (`sandbox`).

    ``test_ids`` and ``exemplar_ids``: the numbers of test rows and exemplars where one file holds every split.
    """

    name: str
    about: str
    shots: int
    read: Callable[[Row], Item]
    template: Template
    grade: Callable[[str, Mapping[str, Any]], Grade]
    hub: Hub
    max_new_tokens: int = 256
    runs_code: bool = False
    test_ids: range = range(0)
    exemplar_ids: range = range(0)


def _gsm8k(row: Row) -> Item:
    """``question`` and ``answer`` (worked out, then ``#### 18``); or ``prompt``, ``reference`` and ``answer``."""
    solution = row.text("reference", "answer")
    _, mark, result = solution.rpartition(RESULT_MARK)
    if not mark or not numbers(result):
        raise InvalidRequestError(f"{row.where}: the worked answer must end in '{RESULT_MARK} number'")
    return Item(row.text("question", "prompt"), solution.strip(), {"answer": result.strip()})


def _humaneval(row: Row) -> Item:
    """``prompt``, ``canonical_solution`` (or ``reference``), ``test``, ``entry_point``."""
    prompt, entry_point = row.text("prompt"), row.text("entry_point")
    grading = {"prompt": prompt, "entry_point": entry_point, "test": row.text("test")}
    return Item(prompt, row.text("canonical_solution", "reference"), grading)


def _mbpp(row: Row) -> Item:
    """``text`` (or ``prompt``), ``code`` (or ``reference``), ``test_list``; ``test_setup_code`` or ``test_imports``."""
    tests = row.texts("test_list")
    if not tests:
        raise InvalidRequestError(f"{row.where}: test_list holds no test")
    setup = row.get("test_setup_code", "test_imports") if row.has("test_setup_code", "test_imports") else ""
    setup = "\n".join(setup) if isinstance(setup, list) else str(setup)
    code = row.text("code", "reference").strip()
    grading = {"tests": tests, "setup": setup.replace("\r\n", "\n")}
    return Item(row.text("text", "prompt").strip(), code, grading, "\n".join(tests))


def _math(row: Row) -> Item:
    """``problem`` (or ``prompt``), ``solution`` (or ``reference``) with its boxed result, perhaps ``answer``."""
    solution = row.text("solution", "reference")
    answer = row.text("answer") if row.has("answer") else boxed(solution)
    if answer is None:
        raise InvalidRequestError(f"{row.where}: the solution boxes no answer and there is no column answer")
    return Item(row.text("problem", "prompt"), solution.strip(), {"answer": answer})


def _truthfulqa(row: Row) -> Item:
    """``question`` (or ``prompt``), ``best_answer`` (or ``reference``), ``correct_answers``, ``incorrect_answers``."""
    best = row.text("best_answer", "reference").strip()
    correct = list(dict.fromkeys([best, *row.texts("correct_answers")]))
    grading = {"best": best, "correct": correct, "incorrect": row.texts("incorrect_answers")}
    return Item(row.text("question", "prompt").strip(), best, grading)


BENCHMARKS: dict[str, Benchmark] = {
    benchmark.name: benchmark
    for benchmark in (
        Benchmark(
            name="gsm8k",
            about="school mathematics in words; the final number is graded",
            shots=5,
            read=_gsm8k,
            template=Template(
                ask="Problem: {question}\nWorking:",
                lead=" ",
                hint=f"Work the problem out step by step. Write the final number on a line of its own, after "
                f"{RESULT_MARK}.\n\n",
                stop=("\n\nProblem:",),
            ),
            grade=grade_number,
            hub=Hub("openai/gsm8k", "main"),
        ),
        Benchmark(
            name="humaneval",
            about="Python functions to complete from their documentation; graded by running their tests",
            shots=0,
            read=_humaneval,
            template=Template(ask="{question}"),
            grade=grade_completion,
            hub=Hub("openai/openai_humaneval", "openai_humaneval", exemplars="test"),
            runs_code=True,
        ),
        Benchmark(
            name="mbpp",
            about="short Python programs from a sentence and three assertions; graded by running those",
            shots=3,
            read=_mbpp,
            template=Template(
                ask="Task: {question}\nThe program must pass these lines:\n{tests}\nProgram:\n```python\n",
                end="\n```\n\n",
                stop=("\n```",),
            ),
            grade=grade_program,
            hub=Hub("google-research-datasets/mbpp", "full", exemplars="prompt"),
            runs_code=True,
            test_ids=range(11, 511),
            exemplar_ids=range(1, 11),
        ),
        Benchmark(
            name="math",
            about="competition mathematics with worked solutions; the boxed answer is graded",
            shots=4,
            read=_math,
            template=Template(
                ask="Problem: {question}\nSolution:",
                lead=" ",
                hint="Solve the problem step by step. Put the final answer in \\boxed{}.\n\n",
                stop=("\n\nProblem:",),
            ),
            grade=grade_boxed,
            hub=Hub("DigitalLearningGmbH/MATH-lighteval", "default"),
            max_new_tokens=512,
        ),
        Benchmark(
            name="truthfulqa",
            about="questions that people answer wrongly; graded by the nearest reference, not by a language model",
            shots=0,
            read=_truthfulqa,
            template=Template(ask="Question: {question}\nAnswer in a sentence:", lead=" ", stop=("\n\nQuestion:",)),
            grade=grade_truthful,
            hub=Hub("truthfulqa/truthful_qa", "generation", test="validation", exemplars="validation"),
        ),
    )
}
