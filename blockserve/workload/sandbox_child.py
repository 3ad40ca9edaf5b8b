"""The child's side of `blockserve.workload.sandbox`: a script on its own, standard library only.

Started in an empty folder with ``job.json``; writes one line of JSON, ``{"passed": n, "failure": text or null}``, to
what was its standard output. Silence means that the program ended the interpreter.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
from types import ModuleType
from typing import Any, NoReturn

MIB = 1 << 20
LONGEST_FAILURE = 200  # characters
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

# Audit events that end the program, by name or by the part before the first dot.
REFUSED = {
    *"os.fork os.forkpty os.posix_spawn os.spawn os.exec os.system os.startfile os.kill os.killpg".split(),
    *"subprocess.Popen pty.spawn resource.setrlimit resource.prlimit webbrowser.open".split(),
    *"socket ftplib http imaplib nntplib poplib smtplib telnetlib urllib".split(),
}
# Events that change files → places, among their arguments, of each path and of the folder it may be relative to.
CHANGES: dict[str, tuple[tuple[int, int | None], ...]] = {
    "os.remove": ((0, 1),),
    "os.rmdir": ((0, 1),),
    "os.mkdir": ((0, 2),),
    "os.rename": ((0, 2), (1, 3)),
    "os.link": ((1, 3),),
    "os.symlink": ((1, 2),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.utime": ((0, 3),),
    "os.truncate": ((0, None),),
    "os.setxattr": ((0, None),),
    "os.removexattr": ((0, None),),
    "shutil.rmtree": ((0, None),),
    "sqlite3.connect": ((0, None),),
}


class Guard:
    """The audit hook, and the way back to the parent. A refusal is final: no ``except`` of the program gets past it."""

    def __init__(self, pipe: int, folder: str) -> None:
        self.pipe, self.folder, self.passed = pipe, folder, 0

    def __call__(self, event: str, args: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = args
            if flags & WRITING:
                self.check(path, None, "writes to")
        elif event in CHANGES:
            for path, folder in CHANGES[event]:
                self.check(args[path], None if folder is None else args[folder], f"{event} of")
        elif event in REFUSED or event.partition(".")[0] in REFUSED:
            self.report(f"stopped: {event}")

    def check(self, path: object, folder: int | None, what: str) -> None:
        """End the program unless ``path`` (relative to the open ``folder``, if one is given) is in its own folder."""
        if isinstance(path, int):
            return  # a file that is open already
        name = os.fsdecode(path)  # type: ignore[arg-type]
        if name in (os.devnull, ":memory:"):
            return
        if folder is not None and folder >= 0 and not os.path.isabs(name):
            name = os.path.join(os.path.realpath(f"/proc/self/fd/{folder}"), name)  # no such thing on macOS: refused
        real = os.path.realpath(name)
        if os.path.commonpath([real, self.folder]) != self.folder:
            self.report(f"stopped: {what} {name}, outside its folder")

    def report(self, failure: str | None) -> NoReturn:
        """Tell the parent and leave, past every handler, thread and ``finally`` of the program."""
        line = json.dumps({"passed": self.passed, "failure": failure and failure[:LONGEST_FAILURE]})
        os.write(self.pipe, line.encode())
        os._exit(0)


def set_limits(seconds: float, cpu_seconds: int, memory_mb: int, file_mb: int) -> None:
    """Limits that the program cannot raise; the alarm is for a parent that was itself killed."""
    signal.alarm(int(seconds) + 2)
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_seconds, cpu_seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (file_mb * MIB, file_mb * MIB))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform != "darwin":  # which refuses to set it
        resource.setrlimit(resource.RLIMIT_AS, (memory_mb * MIB, memory_mb * MIB))


def close_side_doors() -> None:
    """``multiprocessing`` can start processes through a function that raises no audit event."""
    import _posixsubprocess

    def refuse(*args: object) -> NoReturn:
        os.fork()  # the hook ends the program here

    _posixsubprocess.fork_exec = refuse


def run(job: dict[str, Any], guard: Guard) -> str | None:
    """Run program, set-up and tests; the first failure in words."""
    module = ModuleType("answer")  # not __main__: examples under a main guard are no part of the answer
    sys.modules["answer"] = module  # dataclasses look their module up
    failure = None
    try:
        for name in ("program", "setup"):
            exec(compile(job[name], f"<{name}>", "exec", dont_inherit=True), module.__dict__)
    except BaseException as error:  # SystemExit and KeyboardInterrupt too
        return describe(error)
    for test in job["tests"]:
        try:
            exec(compile(test, "<test>", "exec", dont_inherit=True), module.__dict__)
            guard.passed += 1
        except BaseException as error:
            failure = failure or describe(error)
    return failure


def describe(error: BaseException) -> str:
    """An exception in one line; its own ``__str__`` is the program's and may fail."""
    try:
        return f"{type(error).__name__}: {error}".strip(": ").replace("\n", " ")
    except BaseException:
        return type(error).__name__


def main() -> None:
    with open("job.json", encoding="utf-8") as file:
        job = json.load(file)
    os.remove("job.json")
    guard = Guard(os.dup(1), os.path.realpath("."))
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    set_limits(**job["limits"])
    close_side_doors()
    sys.addaudithook(guard)
    guard.report(run(job, guard))


if __name__ == "__main__":
    main()
