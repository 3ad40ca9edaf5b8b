"""Runs a program that a model wrote, against tests, in a process that is stopped when it misbehaves.

**A guard against accidents, no security boundary.** The child has limits on time, memory and file size, and an audit
hook that ends it when it starts a process, opens a socket, signals another process or changes a file outside its own
temporary folder; the whole process group is killed at the end. It can read whatever you can read, and code that
*wants* out gets out (through `ctypes`, say). A model that you do not trust belongs in a container or a virtual machine.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from blockserve.core import ConfigError, check_int, check_number

AVAILABLE = os.name == "posix"
CHILD = Path(__file__).with_name("sandbox_child.py")
MOST_OUTPUT = 1 << 16  # bytes; a verdict is a short line
INHERITED = ("PATH", "LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "LANG", "LC_ALL")  # what an interpreter may need to start


@dataclass(frozen=True)
class Limits:
    """What a program may use. An endless loop meets ``cpu_seconds`` (whole, as the system counts them); ``seconds`` of
    wall time are more, so that a right answer is not wrong because the machine is busy. ``memory_mb`` is address space
    in MiB (macOS does not enforce it), ``file_mb`` the largest file in MiB."""

    seconds: float = 8.0
    cpu_seconds: int = 4
    memory_mb: int = 1024
    file_mb: int = 16

    def __post_init__(self) -> None:
        check_number("seconds", self.seconds, 0.0, open_low=True)
        for name in ("cpu_seconds", "memory_mb", "file_mb"):
            check_int(name, getattr(self, name), 1)


@dataclass(frozen=True)
class Outcome:
    """``passed`` of ``tests`` tests; ``failure`` says what went wrong first, ``None`` when all passed."""

    passed: int
    tests: int
    failure: str | None = None

    @property
    def ok(self) -> bool:
        return self.failure is None and self.passed == self.tests


def run_tests(program: str, tests: Sequence[str], *, setup: str = "", limits: Limits | None = None) -> Outcome:
    """Run ``program``, then ``setup``, then each of ``tests``, in one namespace of a new interpreter.

    A test passes when it raises nothing. What the program prints is thrown away and its input is empty. Whatever the
    program does, this returns within ``limits.seconds`` and a moment, and leaves no process and no file behind. Raises
    `ConfigError` on a system without POSIX limits.
    """
    if not AVAILABLE:
        raise ConfigError("running a model's programs needs POSIX limits (Linux, macOS); this system has none")
    limits = limits or Limits()
    with TemporaryDirectory(prefix="blockserve-", ignore_cleanup_errors=True) as folder:
        job = {"program": program, "setup": setup, "tests": list(tests), "limits": asdict(limits)}
        Path(folder, "job.json").write_text(json.dumps(job), encoding="utf-8")
        child = _start(folder)
        try:
            said = _read(child, time.monotonic() + limits.seconds)
        finally:  # also after an interrupt
            _end(child)
    return _outcome(said, child.returncode, len(tests), limits)


def _start(folder: str) -> subprocess.Popen[bytes]:
    """The child, in a session and so in a process group of its own."""
    environment = {name: os.environ[name] for name in INHERITED if name in os.environ}
    # One hash seed, so that a program whose result hangs on the order of a set is graded the same every time.
    environment |= {"HOME": folder, "TMPDIR": folder, "PYTHONHASHSEED": "0", "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.Popen(
        [sys.executable, "-P", "-s", "-B", "-X", "utf8", str(CHILD)],
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def _read(child: subprocess.Popen[bytes], deadline: float) -> bytes | None:
    """All that the child writes until it closes its pipe; ``None`` when the deadline comes first."""
    said = b""
    with selectors.DefaultSelector() as selector:
        selector.register(child.stdout, selectors.EVENT_READ)
        while len(said) < MOST_OUTPUT:
            left = deadline - time.monotonic()
            if left <= 0 or not selector.select(left):
                return None
            chunk = os.read(child.stdout.fileno(), MOST_OUTPUT)
            if not chunk:
                break
            said += chunk
    return said


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the group, then reap: in this order, as the group's number is ours only while the child is not reaped."""
    with suppress(ProcessLookupError, PermissionError):  # gone already; macOS says the second of a zombie
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()


def _outcome(said: bytes | None, status: int, tests: int, limits: Limits) -> Outcome:
    """What the child said, or why it said nothing."""
    if said is None:
        return Outcome(0, tests, f"stopped: more than {limits.seconds:g} s")
    try:
        verdict = json.loads(said)
        return Outcome(int(verdict["passed"]), tests, verdict["failure"])
    except (ValueError, TypeError, KeyError):  # silence, or something else's words
        pass
    if status == -signal.SIGXCPU:
        return Outcome(0, tests, f"stopped: more than {limits.cpu_seconds} s of processor time")
    ended = f"by {signal.Signals(-status).name}" if status < 0 else f"with exit status {status}"
    return Outcome(0, tests, f"the interpreter ended {ended} before the tests did")
