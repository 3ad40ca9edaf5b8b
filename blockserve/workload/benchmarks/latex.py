"""MATH's grader: the boxed answer, compared after LaTeX that looks different and means the same is made the same."""

from __future__ import annotations

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from typing import Any

from blockserve.workload.benchmarks.answers import MOST_DIGITS
from blockserve.workload.problems import Grade

TEXT = r"\\(?:text|mbox|hbox|mathrm|mathbf|textrm|textbf|textit)"
# Applied from the top down; every rewrite may count on the ones before it.
REWRITES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), by)
    for pattern, by in (
        (r"\\\\(\[[^\]]*\])?", "\x00"),  # a row's end in a matrix: kept from the rules for \ and a space, below
        (r"\\(?:left|right)\s*\.", ""),
        (r"\\(?:left|right|[bB]igg?[lrm]?)(?![a-zA-Z])", ""),
        (r"\\(le|ge|ne)(?![a-zA-Z])", r"\\\1q"),
        (r"\\[dtc]frac(?![a-zA-Z])", r"\\frac"),
        (r"\^\s*\{?\s*\\circ\s*\}?|\\degree(?![a-zA-Z])", ""),
        (r"\\?[%$]", ""),
        (r"\\q?quad(?![a-zA-Z])|\\[!,;:> ]|[~\s]", ""),
        (r"\{,\}", ","),
        (rf"(?<=.){TEXT}\{{[^{{}}]*\}}(?:\^\{{?\d\}}?)?$", ""),  # a unit at the end
        (rf"{TEXT}\{{([^{{}}]*)\}}", r"\1"),
        (r"\\frac([^{\\])", r"\\frac{\1}"),
        (r"(\\frac\{[^{}]*\})([^{\\])", r"\1{\2}"),
        (r"\\sqrt([^{\[\\])", r"\\sqrt{\1}"),
        (r"([\^_])\{(\w)\}", r"\1\2"),
        (r"^[a-zA-Z](?:\([a-zA-Z]\)|_\w)?(?:=|\\in(?![a-zA-Z]))(?=[^=]+$)", ""),  # "x =" before the value
        (r"^\(([A-Z])\)$", r"\1"),  # one of the choices
        (r"\.$", ""),
    )
)
DECIMAL = r"\d+(?:\.\d*)?|\.\d+"
FRACTION = re.compile(r"(-?)(\d*)\\frac\{(-?\d+)\}\{(\d+)\}|(-?)()(\d+)/(\d+)")


def boxed(text: str) -> str | None:
    r"""What the last ``\boxed{…}`` (or ``\boxed 5``, ``\fbox{…}``) holds; ``None`` without a complete one."""
    for start in reversed(list(re.finditer(r"\\(?:boxed|fbox)\s*", text))):
        rest = text[start.end() :]
        if not rest.startswith("{"):
            if plain := re.match(r"[^\s$.,]+", rest):
                return plain.group(0)
            continue
        depth = 0
        for place, character in enumerate(rest):
            depth += (character == "{") - (character == "}")
            if depth == 0:
                return rest[1:place]
    return None


def stated(text: str) -> str | None:
    """The boxed answer, else what follows "answer is" to the end of its sentence or line."""
    found = boxed(text)
    if found is not None:
        return found
    said = re.findall(r"answer\s*(?:is|:)\s*(.+?)(?:\.\s|\.?$)", text, re.IGNORECASE | re.MULTILINE)
    return said[-1] if said else None


def canonical(latex: str) -> str:
    r"""One spelling of an answer: no spacing, sizes, units, degrees or dollars; full braces; numbers as fractions.

    ``\dfrac 12``, ``\frac{1}{2}``, ``1/2`` and ``.5`` become ``1/2``; ``10,\!080`` becomes ``10080``. No algebra is
    done: ``2+x`` and ``x+2`` differ.
    """
    text = latex.strip()
    for pattern, by in REWRITES:
        text = pattern.sub(by, text)
    value = number(text)
    return text if value is None else str(value)


def number(text: str) -> Fraction | None:
    r"""``text`` as a number when all of it is one: decimals, ``a/b``, ``\frac{a}{b}``, ``1\frac{1}{2}``."""
    if len(text) > MOST_DIGITS:
        return None
    if re.fullmatch(r"-?\d{1,3}(,\d{3})+(\.\d+)?", text):
        text = text.replace(",", "")
    if re.fullmatch(rf"-?(?:{DECIMAL})", text):
        return Fraction(Decimal(text))
    match = FRACTION.fullmatch(text)
    if match is None:
        return None
    sign, whole, above, below = (part or "" for part in (match.groups()[:4] if match[3] else match.groups()[4:]))
    if not int(below):
        return None
    value = int(whole or "0") + Fraction(int(above), int(below))
    return -value if sign else value


def grade_boxed(text: str, data: Mapping[str, Any]) -> Grade:
    """MATH: the stated answer (`stated`) equals the reference after `canonical`, character by character."""
    answer = stated(text)
    expected = data["answer"]
    return Grade(answer is not None and canonical(answer) == canonical(expected), answer, expected)
