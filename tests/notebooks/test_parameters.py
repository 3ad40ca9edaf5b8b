"""Parameters of a notebook: read from its cell, values checked and converted before anything runs."""

from __future__ import annotations

import nbformat
import pytest

from blockserve.core import BlockServeError, ConfigError, UnknownNameError
from blockserve.report import parameters, parse_assignments
from blockserve.report.parameter import check_parameters

CELL = '''
"""What to run."""
n = 48  # how many requests
rate: float = 2.0  # requests a second (> 0)
token_budget: int | None = None  # tokens of the box; None: by slots
slots: int | str = "auto"
presets = ["static", "blockserve-budget"]
quick = False
rule = "tau=0.9 # not a comment"
loads: list[float] = [0.5, 1]
widths: list[int | str] | None = None
names: list[str] = ["a"]
anything = None
'''


@pytest.fixture
def notebook(tmp_path):
    def write(source, tags=("parameters",)):
        cell = nbformat.v4.new_code_cell(source, metadata={"tags": list(tags)})
        path = tmp_path / "nb.ipynb"
        nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
        return path

    return write


@pytest.fixture
def known(notebook):
    return parameters(notebook(CELL))


def test_names_defaults_kinds_and_comments_are_read(known):
    assert list(known) == [
        "n",
        "rate",
        "token_budget",
        "slots",
        "presets",
        "quick",
        "rule",
        "loads",
        "widths",
        "names",
        "anything",
    ]
    assert (known["n"].default, known["n"].kinds, known["n"].help) == (48, (int,), "how many requests")
    assert known["token_budget"].kind_names == "int or None"
    assert known["rule"].default == "tau=0.9 # not a comment"
    assert known["presets"].kinds == (list,) and known["presets"].items == ()
    assert known["loads"].kind_names == "list of float"
    assert known["widths"].kind_names == "list of int or str or None"


def test_a_notebook_without_a_parameters_cell_has_none(notebook):
    assert parameters(notebook("n = 1", tags=())) == {}


def test_a_parameters_cell_that_computes_is_refused(notebook):
    with pytest.raises(BlockServeError, match="`name = literal` lines only"):
        parameters(notebook("import os\nn = os.cpu_count()"))


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("n", "12", 12),
        ("n", 12, 12),
        ("rate", "3", 3.0),
        ("rate", 3, 3.0),
        ("rate", "inf", float("inf")),
        ("token_budget", "None", None),
        ("token_budget", "2048", 2048),
        ("slots", "8", 8),
        ("slots", "auto", "auto"),
        ("presets", "static,block-fifo", ["static", "block-fifo"]),
        ("presets", "['static']", ["static"]),
        ("quick", "true", True),
        ("quick", "0", False),
        ("rule", "12", "12"),
        ("loads", "1,0.9", [1.0, 0.9]),
        ("loads", [1, 2], [1.0, 2.0]),
        ("widths", "1,full", [1, "full"]),
        ("widths", "None", None),
        ("names", "1,b", ["1", "b"]),
        ("anything", "12", 12),
        ("anything", "abc", "abc"),
    ],
)
def test_text_and_values_become_the_parameters_type(known, name, given, value):
    converted = known[name].convert(given)
    assert converted == value and type(converted) is type(value)


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("n", "abc"),
        ("n", "1.5"),
        ("n", "True"),
        ("n", True),
        ("n", None),
        ("n", ""),
        ("n", "__import__('os')"),
        ("rate", "fast"),
        ("token_budget", "x"),
        ("quick", "2"),
        ("quick", 1),
        ("rule", 12),
        ("presets", "[oops"),
        ("loads", "abc"),
        ("loads", "0.5,high"),
        ("loads", [True]),
        ("widths", "1,0.5"),
        ("names", [1]),
    ],
)
def test_the_wrong_type_is_refused_with_name_value_and_type(known, name, given):
    with pytest.raises(ConfigError) as caught:
        known[name].convert(given)
    message = str(caught.value)
    assert repr(name) in message and repr(given) in message and known[name].kind_names in message


def test_an_unknown_parameter_names_the_nearest_and_all(known):
    with pytest.raises(UnknownNameError) as caught:
        check_parameters(known, {"token_bugdet": "1"})
    assert "Did you mean 'token_budget'?" in str(caught.value)
    assert all(name in str(caught.value) for name in known)


def test_assignments_of_a_command_line():
    assert parse_assignments(["n=48", "rule=tau=0.9"]) == {"n": "48", "rule": "tau=0.9"}
    for wrong in (["n"], ["=3"], ["n=1", "n=2"]):
        with pytest.raises(BlockServeError):
            parse_assignments(wrong)
