"""Running a model's programs: what is right passes, what misbehaves is stopped soon, and nothing is left behind."""

from __future__ import annotations

import os
import tempfile
import time

import pytest

from blockserve.core import ConfigError
from blockserve.workload import sandbox
from blockserve.workload.sandbox import Limits, Outcome, run_tests

TIGHT = Limits(seconds=1.2, cpu_seconds=1, memory_mb=512)
ADD = "def add(a, b):\n    return a + b\n"
PASSES = "assert True"


@pytest.fixture(autouse=True)
def children(monkeypatch, tmp_path):
    """Every child started, with its folder under ``tmp_path``; afterwards no group and no folder may be left."""
    started, start = [], sandbox._start
    monkeypatch.setattr(sandbox, "_start", lambda folder: started.append(start(folder)) or started[-1])
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    yield started
    for child in started:
        assert child.returncode is not None
        with pytest.raises(ProcessLookupError):
            os.killpg(child.pid, 0)
    assert not list((tmp_path / "temporary").iterdir())


# -------------------------------------------------------------------------------------------- what is right


def test_a_right_program_passes_every_test():
    assert run_tests(ADD, ["assert add(1, 2) == 3", "assert add('a', 'b') == 'ab'"]) == Outcome(2, 2)


def test_a_wrong_program_fails_the_tests_that_it_fails():
    outcome = run_tests(ADD, ["assert add(1, 2) == 3", "assert add(1, 2) == 4", "assert add(2, 2) == 4", "add(1)"])
    assert outcome == Outcome(2, 4, "AssertionError") and not outcome.ok


def test_the_set_up_comes_between_program_and_tests():
    assert run_tests("class Node: pass", ["assert root.left is None"], setup="root = Node()\nroot.left = None").ok


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("def f(:", "SyntaxError"),
        ("return 1", "SyntaxError"),
        ("x = 1 / 0", "ZeroDivisionError"),
        ("import threading, time\nthreading.Thread(target=time.sleep, args=(99,)).start()\n1 / 0", "ZeroDivisionError"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("input()", "EOFError"),
        ("class E(Exception):\n    def __str__(self): return 1 / 0\nraise E", "E"),
        ("raise ValueError('two\\nlines')", "ValueError: two lines"),
        ("raise ValueError('x' * 10**6)", "ValueError: xxx"),
    ],
)
def test_a_program_that_fails_says_how(program, failure):
    outcome = run_tests(program, [PASSES])
    assert (outcome.passed, outcome.tests) == (0, 1) and not outcome.ok
    assert outcome.failure.startswith(failure) and len(outcome.failure) <= 200 and "\n" not in outcome.failure


def test_ordinary_things_are_allowed():
    program = """
import dataclasses, io, contextlib, os, pathlib, shutil, sqlite3, tempfile, threading

@dataclasses.dataclass
class Point:
    x: "int"

print("noise", Point(1))
with open("own.txt", "w") as file:
    file.write("mine")
with tempfile.TemporaryDirectory() as folder:
    pathlib.Path(folder, "inner").mkdir()
    pathlib.Path(folder, "inner", "a").write_text("a")
os.mkdir("sub"); os.rename("own.txt", "sub/own.txt"); shutil.rmtree("sub")
with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
    print("more")
sqlite3.connect(":memory:").close()
threading.Thread(target=lambda: None).start()
source = open(os.__file__).read()
if __name__ == "__main__":
    raise SystemExit("an example under a main guard is no part of the answer")
"""
    assert run_tests(program, ["assert source and Point(2) == Point(2)"]) == Outcome(1, 1)


def test_installed_packages_can_be_used():
    assert run_tests("import numpy as np", ["assert np.dot([1, 2], [3, 4]) == 11"]) == Outcome(1, 1)


def test_a_grade_does_not_depend_on_the_hash_seed():
    program = "order = list({'a', 'b', 'c', 'd', 'e', 'f', 'g'})"
    failures = {run_tests(program, ["assert False, order"]).failure for _ in range(3)}
    assert len(failures) == 1


def test_the_program_does_not_see_our_environment(monkeypatch):
    monkeypatch.setenv("MY_TOKEN", "secret")
    assert run_tests("import os", ["assert 'MY_TOKEN' not in os.environ"]).ok


# -------------------------------------------------------------------------------------------- what misbehaves


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import time\ntime.sleep(1000)", "stopped: more than 1.2 s"),
        ("while True:\n    try:\n        while True: pass\n    except BaseException: pass", "stopped: more than 1"),
        ("import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nwhile True: pass", "stopped: more than 1.2 s"),
        ("while True: print('x' * 1000)", "stopped: more than 1"),
        ("import os\nos.closerange(0, 100)\nwhile True: pass", "the interpreter ended by SIGKILL"),
    ],
    ids=["sleep", "loop that catches all", "loop that ignores signals", "output", "pipe closed"],
)
def test_what_goes_on_for_ever_is_stopped(program, failure):
    begin = time.monotonic()
    outcome = run_tests(program, [PASSES], limits=TIGHT)
    assert not outcome.ok and outcome.passed == 0 and outcome.failure.startswith(failure)
    assert time.monotonic() - begin < 5  # on a busy machine; 1.2 s on a quiet one


def test_an_endless_loop_meets_the_limit_on_processor_time():
    outcome = run_tests("while True: pass", [PASSES], limits=Limits(seconds=30, cpu_seconds=1))
    assert outcome == Outcome(0, 1, "stopped: more than 1 s of processor time")


@pytest.mark.parametrize(
    "program",
    ["hoard = []\nwhile True: hoard.append(bytearray(1 << 24))", "x = 'x' * (1 << 40)", "x = list(range(10**9))"],
)
def test_memory_is_limited(program):
    # Little memory and more time: pages are slow to come by on some virtual machines.
    outcome = run_tests(program, [PASSES], limits=Limits(seconds=6, cpu_seconds=4, memory_mb=128))
    assert not outcome.ok and outcome.failure.startswith("MemoryError")


def test_the_size_of_a_file_is_limited():
    outcome = run_tests("open('big', 'wb').write(bytes(1 << 22))", [PASSES], limits=Limits(file_mb=1))
    assert not outcome.ok and "too large" in outcome.failure


@pytest.mark.parametrize(
    ("program", "event"),
    [
        ("import socket\nsocket.socket()", "socket.__new__"),
        ("import socket\ntry:\n    socket.create_connection(('127.0.0.1', 9))\nexcept BaseException: pass", "socket."),
        ("import urllib.request\nurllib.request.urlopen('http://127.0.0.1:9')", "urllib.Request"),
        ("import os\nos.fork()", "os.fork"),
        ("import os\nwhile True:\n    try: os.fork()\n    except BaseException: pass", "os.fork"),
        ("import os\nos.system('true')", "os.system"),
        ("import os\nos.execv('/bin/true', ['true'])", "os.exec"),
        ("import os\nos.posix_spawn('/bin/true', ['true'], {})", "os.posix_spawn"),
        ("import subprocess\nsubprocess.run(['true'])", "subprocess.Popen"),
        ("import multiprocessing as m\nm.get_context('fork').Process(target=print).start()", "os.fork"),
        ("import multiprocessing as m\nm.get_context('spawn').Process(target=print).start()", "os.fork"),
        ("import os\nos.kill(os.getppid(), 9)", "os.kill"),
        ("import os\nos.killpg(os.getppid(), 9)", "os.killpg"),
        ("import resource as r\nr.setrlimit(r.RLIMIT_CPU, (99, 99))", "resource.setrlimit"),
    ],
)
def test_sockets_processes_and_signals_are_refused(program, event):
    outcome = run_tests(program, [PASSES])
    assert outcome.passed == 0 and outcome.failure.startswith(f"stopped: {event}")


@pytest.mark.parametrize(
    "program",
    [
        "open(OUT + '/new', 'w')",
        "try:\n    open(OUT + '/new', 'a')\nexcept BaseException: pass",
        "open(OUT + '/kept', 'r+')",
        "import os\nos.chdir(OUT)\nopen('new', 'x')",
        "import os\nos.open(OUT + '/new', os.O_CREAT | os.O_WRONLY)",
        "import os\nos.symlink(OUT, 'link')\nopen('link/new', 'w')",
        "import os\nopen(os.path.relpath(OUT + '/new'), 'w')",
        "import os\nos.remove(OUT + '/kept')",
        "import os\nos.rename(OUT + '/kept', 'mine')",
        "import os\nopen('mine', 'w')\nos.replace('mine', OUT + '/kept')",
        "import os\nos.mkdir(OUT + '/new')",
        "import os\nos.truncate(OUT + '/kept', 0)",
        "import os\nos.chmod(OUT + '/kept', 0)",
        "import os\nos.remove('kept', dir_fd=os.open(OUT, os.O_RDONLY))",
        "import shutil\nshutil.rmtree(OUT)",
        "import pathlib\npathlib.Path(OUT, 'new').touch()",
        "import sqlite3\nsqlite3.connect(OUT + '/new')",
    ],
)
def test_files_outside_its_folder_stay_as_they_are(program, tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").write_text("as it was")
    mode = (outside / "kept").stat().st_mode
    outcome = run_tests(f"OUT = {str(outside)!r}\n{program}", [PASSES])
    assert outcome.passed == 0 and outcome.failure.startswith("stopped: ") and "outside its folder" in outcome.failure
    assert [path.name for path in outside.iterdir()] == ["kept"]
    assert (outside / "kept").read_text() == "as it was" and (outside / "kept").stat().st_mode == mode


@pytest.mark.parametrize(
    ("program", "failure"),
    [
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("exit()", "SystemExit: None"),
        ("raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("import os\nos._exit(0)", "the interpreter ended with exit status 0"),
        ("import os\nos.abort()", "the interpreter ended by SIGABRT"),
        ("import ctypes\nctypes.string_at(0)", "the interpreter ended by SIGSEGV"),
        ("import os\nos.write(3, b'all passed')\nos._exit(0)", "the interpreter ended with exit status 0"),
    ],
)
def test_leaving_the_interpreter_is_no_way_to_pass(program, failure):
    assert run_tests(program, [PASSES]) == Outcome(0, 1, outcome_of(failure))


def outcome_of(failure: str) -> str:
    return f"{failure} before the tests did" if failure.startswith("the interpreter") else failure


def test_leaving_in_a_test_counts_what_passed_before():
    outcome = run_tests("import os", [PASSES, "import sys; sys.exit(0)", PASSES])
    assert outcome == Outcome(2, 3, "SystemExit: 0")
    assert run_tests("import os", [PASSES, "os.fork()", PASSES]) == Outcome(1, 3, "stopped: os.fork")


# -------------------------------------------------------------------------------------------- ourselves


def test_an_interrupt_ends_the_child(monkeypatch, children):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(sandbox, "_read", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_tests("while True: pass", [PASSES])
    assert len(children) == 1  # whose end the fixture checks


def test_where_limits_do_not_exist_nothing_is_run(monkeypatch, children):
    monkeypatch.setattr(sandbox, "AVAILABLE", False)
    with pytest.raises(ConfigError, match="needs POSIX limits"):
        run_tests(ADD, [PASSES])
    assert not children


@pytest.mark.parametrize("wrong", [{"seconds": 0}, {"cpu_seconds": 0.5}, {"memory_mb": -1}, {"file_mb": True}])
def test_limits_are_checked(wrong):
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        Limits(**wrong)
