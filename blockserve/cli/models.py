"""``blockserve models`` and ``blockserve train``: the small models of the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockserve.cli.app import app, last_line


@app.command()
def models() -> None:
    """List the built-in models."""
    from rich.console import Console
    from rich.table import Table

    from blockserve.checkpoints import model_table

    found = model_table()
    table = Table("name", "family", "context", "parameters", "accuracy", title="built-in models")
    for entry in found:
        accuracy = ", ".join(f"{task} {value:.1%}" for task, value in entry.get("accuracy", {}).items())
        parameters = f"{entry['parameters']:,}" if "parameters" in entry else "–"
        table.add_row(entry["name"], entry["family"], str(entry["context"]), parameters, accuracy or "–")
    Console(highlight=False).print(table)
    print("A folder with config.json, model.safetensors and tokenizer.json works wherever a name does.")
    last_line({"models": found})


@app.command()
def train(
    recipe: Annotated[str, typer.Option(help="Name of a recipe.")] = "tiny-llada",
    out: Annotated[Path, typer.Option(help="Folder for the run; a run found there is resumed.")] = Path("training"),
    max_steps: Annotated[int | None, typer.Option(help="Stop after that many steps in all.")] = None,
    resume: Annotated[bool, typer.Option(help="Go on from a state found in the folder.")] = True,
    problems: Annotated[int, typer.Option(help="Unseen problems a task to measure on.")] = 200,
) -> None:
    """Train a small model by its recipe; stops and resumes at any time; writes a checkpoint folder."""
    from dataclasses import asdict

    from blockserve import training
    from blockserve.studies.quality import markdown_table

    chosen = training.get_recipe(recipe)
    result = training.train(chosen, out, resume=resume, max_steps=max_steps)
    folder = out / "checkpoint"
    measured = training.export(result, folder, problems=problems)
    print(f"{folder}: {result.steps:,} of {chosen.steps:,} steps, {result.minutes:.1f} minutes")
    print(markdown_table(measured))
    values = {"recipe": recipe, "checkpoint": str(folder), "steps": result.steps, "minutes": result.minutes}
    last_line(values | {"measured": [asdict(m) for m in measured]})
