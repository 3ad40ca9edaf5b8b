"""The parameters of a notebook: read from its ``parameters`` cell, and values checked against them.

Papermill injects any name and only logs a warning when the notebook has no such parameter; the notebook then runs
with its defaults and the figures are wrong in silence. So every name and type is checked here, before it runs. The
cell is read as Python: papermill's own reader goes by regular expression, and misses ``int | None`` annotations and
defaults that hold ``=`` or ``#``.
"""

from __future__ import annotations

import ast
import io
import tokenize
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockserve.core import BlockServeError, ConfigError, unknown_name

_KINDS: dict[str, type] = {t.__name__: t for t in (bool, int, float, str, list, tuple, dict)} | {"None": type(None)}
_SEQUENCES = (list, tuple)
_TRUE, _FALSE = ("true", "yes", "on", "1"), ("false", "no", "off", "0")


@dataclass(frozen=True)
class Parameter:
    """One assignment of the parameters cell: ``name: kinds = default  # help``.

    ``kinds`` are the types a value may have: the annotation's, else the default's; empty means any. ``items`` are
    those of a list's or a tuple's items, as in ``list[float]``; empty means any.
    """

    name: str
    default: Any
    kinds: tuple[type, ...]
    help: str = ""
    items: tuple[type, ...] = ()

    @property
    def kind_names(self) -> str:
        """The kinds as a reader sees them: ``int or None``, ``list of float``."""
        return _named(self.kinds, self.items) or "any value"

    def convert(self, value: Any) -> Any:
        """``value`` as this parameter takes it; text, as a command line gives it, is parsed first.

        Raises `ConfigError` with the name, the value and what is allowed.
        """
        parsed = _widened(self._parse(value) if isinstance(value, str) else value, self.kinds)
        wrong = self.kinds and type(parsed) not in self.kinds  # by type(), for a bool is an int to isinstance
        if self.items and isinstance(parsed, _SEQUENCES):
            parsed = type(parsed)(_widened(item, self.items) for item in parsed)
            wrong = wrong or any(type(item) not in self.items for item in parsed)
        if wrong:
            raise ConfigError(
                f"parameter {self.name!r} must be {self.kind_names}, got {value!r} (default: {self.default!r})"
            )
        return parsed

    def _parse(self, text: str) -> Any:
        """Text as the value it spells for these kinds; what fits none of them stays text."""
        word = text.strip()
        if self.kinds == (str,):
            return text
        if bool in self.kinds and int not in self.kinds and word.lower() in _TRUE + _FALSE:
            return word.lower() in _TRUE
        if float in self.kinds and word.lower() in ("inf", "-inf", "nan"):
            return float(word)
        sequence = next((kind for kind in _SEQUENCES if kind in self.kinds), None)
        if sequence and word[:1] not in ("[", "(") and not (word == "None" and type(None) in self.kinds):
            read = str if self.items == (str,) else _literal_or_text
            return sequence(read(item.strip()) for item in word.split(",") if item.strip())
        parsed = _literal_or_text(word)
        return text if str in self.kinds and type(parsed) not in self.kinds else parsed


def _named(kinds: Iterable[type], items: tuple[type, ...] = ()) -> str:
    names = {type(None): "None"} | (
        {kind: f"{kind.__name__} of {_named(items)}" for kind in _SEQUENCES} if items else {}
    )
    return " or ".join(names.get(kind, kind.__name__) for kind in kinds)


def _widened(value: Any, kinds: tuple[type, ...]) -> Any:
    """A whole number as a float where only that is allowed."""
    return float(value) if type(value) is int and float in kinds and int not in kinds else value


def _literal_or_text(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError):
        return word


def parameters(path: str | Path) -> dict[str, Parameter]:
    """Name → `Parameter` of the notebook at ``path``, in the order of its cell tagged ``parameters``.

    Empty when there is no such cell. Raises `BlockServeError` when the cell is more than plain assignments of
    literals, for then nobody can say what a valid value is.
    """
    import nbformat

    notebook = nbformat.read(path, as_version=4)
    for cell in notebook.cells:
        if "parameters" in cell.metadata.get("tags", ()):
            try:
                return _read_cell(cell.source)
            except (SyntaxError, ValueError) as error:
                message = f"the parameters cell of {path} must hold `name = literal` lines only: {error}"
                raise BlockServeError(message) from None
    return {}


def _read_cell(source: str) -> dict[str, Parameter]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
    found = {}
    for node in ast.parse(source).body:
        if isinstance(node, ast.AnnAssign) and node.value is not None:
            target, kinds, items = node.target, _annotated_kinds(node.annotation), _annotated_items(node.annotation)
        elif isinstance(node, ast.Assign) and len(node.targets) == 1:
            target, kinds, items = node.targets[0], None, ()
        elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        else:
            raise ValueError(f"line {node.lineno}: {ast.unparse(node)}")
        default = ast.literal_eval(node.value)
        if kinds is None:
            kinds = () if default is None else (type(default),)
        name = ast.unparse(target)
        found[name] = Parameter(name, default, kinds, comments.get(node.end_lineno, ""), items)
    return found


def _annotated_kinds(annotation: ast.expr) -> tuple[type, ...]:
    """The types of ``int | None`` or ``list[str]``; empty (any) as soon as one part is not a plain type."""
    if isinstance(annotation, ast.BinOp):
        left, right = _annotated_kinds(annotation.left), _annotated_kinds(annotation.right)
        return left + right if left and right else ()
    if isinstance(annotation, ast.Subscript):
        annotation = annotation.value
    kind = _KINDS.get(ast.unparse(annotation))
    return (kind,) if kind else ()


def _annotated_items(annotation: ast.expr) -> tuple[type, ...]:
    """The types of a list's items: of ``list[float]``, also in ``list[float] | None``; empty (any) if none is said."""
    if isinstance(annotation, ast.BinOp):
        return _annotated_items(annotation.left) or _annotated_items(annotation.right)
    if isinstance(annotation, ast.Subscript) and _KINDS.get(ast.unparse(annotation.value)) in _SEQUENCES:
        return _annotated_kinds(annotation.slice)
    return ()


def check_parameters(known: Mapping[str, Parameter], given: Mapping[str, Any]) -> dict[str, Any]:
    """The values of ``given`` converted to the notebook's types; an unknown name raises with the nearest one."""
    for name in given:
        if name not in known:
            raise unknown_name("parameter", name, known)
    return {name: known[name].convert(value) for name, value in given.items()}


def parse_assignments(pairs: Iterable[str]) -> dict[str, str]:
    """``["n=48", "preset=static"]`` → ``{"n": "48", "preset": "static"}``: the form of ``-p`` on a command line."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, text = pair.partition("=")
        if not equals or not name.strip():
            raise BlockServeError(f"a parameter is given as name=value, got {pair!r}")
        if name.strip() in found:
            raise BlockServeError(f"parameter {name.strip()!r} is given twice")
        found[name.strip()] = text
    return found
