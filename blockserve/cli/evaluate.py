"""``blockserve eval``: quality of a model on the built-in tasks, and by the settings of decoding."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from blockserve.cli.app import app, last_line, option, whole
from blockserve.core import ConfigError


@app.command("eval")
def evaluate(
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    tasks: Annotated[str, typer.Option(help='Built-in families, "a,b" or "all".')] = "all",
    number: Annotated[int, typer.Option("-n", "--requests", help="Unseen problems a family.")] = 200,
    seed: Annotated[int, typer.Option(help="Seed of the problems.")] = 7,
    threshold: Annotated[str, typer.Option(help='Commit rule threshold(τ): one or several, "0.5,0.9".')] = "0.9",
    cache: Annotated[str, typer.Option(help='dual, prefix, none: one or several, "dual,none".')] = "dual",
    suffix: Annotated[str, typer.Option(help='Masked blocks shown after the active one: "0,1,full".')] = "0",
    block_length: Annotated[str, typer.Option(help='L, tokens of a block: one or several, "8,16,32".')] = "16",
    slots: Annotated[int, typer.Option(help="Rows that run at once.")] = 16,
    device: Annotated[str | None, option("cpu, cuda, …")] = None,
    dtype: Annotated[str | None, option("float32, float64, bfloat16, float16.")] = None,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Measure a model on unseen problems, each task at every combination of the settings; Ctrl-C keeps what is done."""
    from blockserve.studies import quality

    settings = {
        "thresholds": _several("--threshold", threshold, float),
        "caches": _several("--cache", cache, str),
        "suffixes": _several("--suffix", suffix, lambda text: whole("suffix", text, "full")),
        "block_lengths": _several("--block-length", block_length, int),
    }
    options = {"slots": slots, "device": device, "dtype": dtype, "progress": progress}
    rows: list[quality.Quality] = []
    interrupted = False
    try:
        for row in quality.evaluate(model, tasks, n=number, seed=seed, **settings, **options):
            rows.append(row)
    except KeyboardInterrupt:
        interrupted = True
    print(quality.markdown_table(rows) if rows else "interrupted before the first setting was measured")
    accuracy: dict[str, float] = {}
    for row in rows:
        accuracy.setdefault(row.task, row.accuracy)  # the first row of a task is at the first of every setting
    measured = {"accuracy": accuracy, "settings": [asdict(row) for row in rows]}
    last_line({"model": model, **measured, "n": number, "seed": seed, "interrupted": interrupted})
    if interrupted:
        raise typer.Exit(130)


def _several(name: str, text: str, parse: Callable[[str], Any]) -> tuple[Any, ...]:
    """The values of a comma-separated option."""
    kinds = {int: "whole numbers", float: "numbers"}
    try:
        return tuple(parse(part.strip()) for part in text.split(","))
    except ConfigError:
        raise
    except ValueError:
        raise ConfigError(f"{name} must be {kinds[parse]} between commas, got {text!r}") from None
