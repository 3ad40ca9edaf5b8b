"""The application: how commands are started, how mistakes end, what every command shares."""

from __future__ import annotations

import json
import sys
import warnings
from typing import Annotated, Any

import typer

from blockserve import __version__
from blockserve.core import BlockServeError, ConfigError

app = typer.Typer(
    help="Block-grained continuous batching for diffusion language models: run it, see it, measure it.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point: a user's mistake ends in one line and exit code 2, a failed notebook with 1, an interrupt
    with 130."""
    warnings.showwarning = lambda message, *_, **__: print(f"blockserve: warning: {message}", file=sys.stderr)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except BlockServeError as error:
        _fail(str(error), code=getattr(error, "exit_code", 2))
    except KeyboardInterrupt:
        _fail("interrupted", code=130)
    except Exception as error:
        if not hasattr(error, "format_message"):  # typer's own usage errors have it; anything else is a bug
            raise
        message = error.format_message()
        if message:
            _fail(message, code=getattr(error, "exit_code", 2))
        sys.exit(getattr(error, "exit_code", 2))


def _fail(message: str, code: int = 2) -> None:
    print(f"blockserve: {message}", file=sys.stderr)
    sys.exit(code)


def last_line(values: dict[str, Any]) -> None:
    print(json.dumps(values, ensure_ascii=False))


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


def option(default_from_preset: str) -> Any:
    return typer.Option(help=default_from_preset, show_default=False)


def whole(name: str, text: str | None, word: str) -> int | str | None:
    """An option that is a whole number or one word."""
    if text is None or text == word:
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f'--{name} must be a whole number or "{word}", got {text!r}') from None
