"""The registry of built-in task families."""

from __future__ import annotations

from collections.abc import Sequence

from blockserve.core import ConfigError, unknown_name
from blockserve.workload.algebra import ALGEBRA
from blockserve.workload.arithmetic import ARITHMETIC
from blockserve.workload.code import CODE
from blockserve.workload.facts import FACTS_FAMILY
from blockserve.workload.problems import Grade, Problem, TaskFamily, problems, split_of, stream
from blockserve.workload.program import PROGRAM

__all__ = ["TASKS", "Grade", "Problem", "TaskFamily", "problems", "register_task", "resolve", "split_of", "stream"]

TASKS: dict[str, TaskFamily] = {}


def register_task(family: TaskFamily) -> TaskFamily:
    """Make ``family`` known by its name; a name is given once."""
    if family.name in TASKS:
        raise ConfigError(f"task {family.name!r} is already registered; choose another name")
    TASKS[family.name] = family
    return family


def resolve(names: str | Sequence[str]) -> tuple[TaskFamily, ...]:
    """Families by ``"arithmetic"``, ``"a,b"``, ``"all"`` or a sequence of names, each once, in that order."""
    listed = names.split(",") if isinstance(names, str) else list(names)
    listed = [name.strip() if isinstance(name, str) else name for name in listed]
    if listed == ["all"]:
        listed = list(TASKS)
    if not listed:
        raise ConfigError(f'no task named; give one or more of {", ".join(sorted(TASKS))}, or "all"')
    for name in listed:
        if name not in TASKS:
            raise unknown_name("task", name, [*TASKS, "all"])
    return tuple(TASKS[name] for name in dict.fromkeys(listed))


for family in (ARITHMETIC, CODE, PROGRAM, ALGEBRA, FACTS_FAMILY):
    register_task(family)
