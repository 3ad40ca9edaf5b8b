"""`blockserve report --sweep`, `--all` and `--diff`, on small notebooks written here."""

from __future__ import annotations

import json

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_notebook

from blockserve.core import BlockServeError, ConfigError, UnknownNameError
from blockserve.report import compare_results, parse_sweeps, run_sweep

PARAMETERS = "n: int = 3\ncolor: str = 'teal'\nquick: bool = False"
RESULTS = """
import json, pathlib
found = {"headline": {"area": 6 // (4 - n), "small": quick}, "timings": {"seconds": 1.5 + n}}
pathlib.Path("results.json").write_text(json.dumps(found))
"""


def write(path, source=RESULTS, parameters=PARAMETERS):
    cells = [new_code_cell(parameters, metadata={"tags": ["parameters"]}), new_code_cell(source)]
    nbformat.write(new_notebook(cells=cells), path)
    return str(path)


def test_the_values_of_a_sweep_are_parted_at_commas_outside_brackets():
    assert parse_sweeps(["n=1, 2", "sizes=[1,2],[4]"]) == {"n": ["1", "2"], "sizes": ["[1,2]", "[4]"]}
    for wrong in ("n=", "n=1,,2", "n=1,1"):
        with pytest.raises(BlockServeError):
            parse_sweeps([wrong])


def test_a_sweep_of_six_with_one_failing_cell_finishes_the_other_five_and_exits_1(tmp_path, command):
    # It divides by zero at n=4, but not in red.
    path = write(tmp_path / "nb.ipynb", RESULTS.replace("(4 - n)", "(1 if color == 'red' else 4 - n)"))
    arguments = ("report", path, "--sweep", "n=1,2,4", "--sweep", "color=red,blue", "--out", tmp_path / "o")
    code, out, _ = command(*arguments, "--no-progress")
    last = json.loads(out.splitlines()[-1])
    assert code == 1 and (last["runs"], last["failed"]) == (6, 1)
    assert "n=4, color=blue: nb.ipynb stopped at cell 2" in out
    page = (tmp_path / "o" / "nb-sweep" / "index.html").read_text()
    assert page.count("<tr>") == 7 and page.count("failed") == 3  # its style, its line, its cell
    assert "<th>area</th>" in page and "ZeroDivisionError" in page
    assert "01-n=1,color=red/nb.html" in page and (tmp_path / "o/nb-sweep/01-n=1,color=red/nb.html").is_file()


@pytest.mark.parametrize(
    ("sweeps", "given", "error"),
    [
        ({"colour": ["red"]}, {}, UnknownNameError),
        ({"n": ["1", "abc"]}, {}, ConfigError),
        ({"n": ["1"]}, {"n": "2"}, BlockServeError),
    ],
)
def test_a_wrong_sweep_is_refused_before_anything_runs(tmp_path, sweeps, given, error):
    with pytest.raises(error):
        run_sweep(write(tmp_path / "nb.ipynb"), tmp_path / "out", sweeps, given, progress=False)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def shipped(tmp_path, monkeypatch):
    """A notebook folder of our own: one that works, one that fails, one without a quick run."""
    folder = tmp_path / "shipped"
    folder.mkdir()
    write(folder / "a_works.ipynb")
    write(folder / "b_fails.ipynb", "1 / 0")
    write(folder / "c_plain.ipynb", RESULTS.replace("quick", "None"), "n: int = 1")
    monkeypatch.setattr("blockserve.report.library.notebook_folder", lambda: folder)
    return folder


def test_all_runs_every_notebook_small_where_it_can_be_and_exits_1_for_a_failure(shipped, tmp_path, command):
    code, out, _ = command("report", "--all", "--quick", "--out", tmp_path / "o", "--no-progress")
    lines = out.splitlines()
    last = json.loads(lines[-1])
    assert code == 1 and last["failed"] == 1 and list(last["reports"]) == ["a_works", "b_fails", "c_plain"]
    assert lines[0].startswith("a_works") and lines[0].endswith("MB") and "FAILED" in lines[1]
    small = json.loads((tmp_path / "o/a_works/results.json").read_text())["headline"]["small"]
    assert small is True and (tmp_path / "o/c_plain/results.json").is_file()


def test_one_failed_notebook_exits_1_and_a_mistake_exits_2(tmp_path, command):
    path = write(tmp_path / "nb.ipynb")
    out = ("--out", tmp_path / "o", "--no-progress")
    assert command("report", path, "-p", "n=4", *out)[0] == 1
    for mistake in (
        ("report", path, "-p", "m=4", *out),
        ("report", *out),
        ("report", path, "--all", *out),
        ("report", path, "--quick", *out),
        ("report", "--all", "-p", "n=1", *out),
        ("report", "--diff", tmp_path / "none.json", tmp_path / "none.json"),
    ):
        code, _, error = command(*mistake)
        assert code == 2 and len(error.strip().splitlines()) == 1


def test_two_runs_are_compared_without_their_timings_unless_asked(tmp_path, command):
    first, second = tmp_path / "a.json", tmp_path / "b.json"
    values = {"headline": {"x": 2, "y": [1, 2]}, "timings": {"s": 1.0}}
    first.write_text(json.dumps(values))
    second.write_text(json.dumps(values | {"timings": {"s": 3.0}}))
    assert compare_results(first, second) == []
    (only,) = compare_results(first, second, timings=True)
    assert (only.path, only.ratio) == ("timings.s", 3.0)
    second.write_text(json.dumps({"headline": {"x": 3, "y": [1, 2, 3]}}))
    found = {d.path: (d.first, d.second) for d in compare_results(first, second)}
    assert found == {"headline.x": (2, 3), "headline.y.2": (None, 3)}
    code, out, _ = command("report", "--diff", first, second)
    assert code == 0 and json.loads(out.splitlines()[-1])["differences"]["headline.x"] == [2, 3]


def test_a_result_that_is_no_json_object_is_refused(tmp_path):
    path = tmp_path / "a.json"
    for text in ("[1]", "{"):
        path.write_text(text)
        with pytest.raises(BlockServeError, match=r"a\.json"):
            compare_results(path, path)
