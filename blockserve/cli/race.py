"""``blockserve race``: presets side by side on one workload."""

from __future__ import annotations

from typing import Annotated

import typer

from blockserve.cli.app import app, last_line, option
from blockserve.reprs import readable


@app.command()
def race(
    presets: Annotated[list[str], typer.Argument(help="Presets; the first is the reference.")],
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    tasks: Annotated[str, typer.Option(help='Built-in families, "a,b" or "all".')] = "arithmetic",
    number: Annotated[int, typer.Option("-n", "--requests", help="Problems a family.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the problems.")] = 0,
    slots: Annotated[int, typer.Option(help="Rows of presets that are bound by slots.")] = 8,
    token_budget: Annotated[int | None, option("β of presets that are bound by a budget.")] = None,
    repeats: Annotated[int, typer.Option(help="Runs of each, interleaved.")] = 3,
    device: Annotated[str | None, option("cpu, cuda, …")] = None,
) -> None:
    """Run the same requests under several presets, interleaved and repeated, and compare."""
    from blockserve.checkpoints import load_model
    from blockserve.engine import Engine
    from blockserve.presets import PRESETS
    from blockserve.studies.race import race as run_race
    from blockserve.workload.sources import Workload

    loaded = load_model(model, device=device)
    engines = {}
    for name in presets:
        bound = PRESETS[name].bound if name in PRESETS else "slots"
        options = {"token_budget": token_budget} if bound == "budget" else {"slots": slots}
        engines[name] = Engine(loaded, name, **options)
    result = run_race(engines, Workload.tasks(tasks, n=number, seed=seed), repeats=repeats)
    print(result.table.map(readable).to_string())
    last_line({name: column.to_dict() for name, column in result.table.items()})
