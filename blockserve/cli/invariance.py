"""``blockserve check-invariance``: do tokens depend on the batch, on this model, device and dtype?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockserve.cli.app import app, last_line, option


@app.command("check-invariance")
def check_invariance(
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    tasks: Annotated[str, typer.Option(help='Built-in families, "a,b" or "all".')] = "arithmetic",
    prompts: Annotated[Path | None, option("JSONL of your own instead: id, prompt, max_new_tokens.")] = None,
    number: Annotated[int, typer.Option("-n", "--requests", help="Problems a family.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of the problems.")] = 0,
    block_length: Annotated[int | None, option("L, tokens of a block.")] = None,
    threshold: Annotated[float | None, option("Commit rule threshold(τ).")] = None,
    cache: Annotated[str | None, option("dual, prefix, none.")] = None,
    device: Annotated[str | None, option("cpu, cuda, …")] = None,
    dtype: Annotated[str | None, option("float32, float64, bfloat16, float16.")] = None,
) -> None:
    """Compare batched runs with solo runs, token by token and step by step."""
    from blockserve.checkpoints import load_model
    from blockserve.studies.invariance import check_invariance as check
    from blockserve.workload.sources import Workload

    loaded = load_model(model, device=device, dtype=dtype)
    options = {"block_length": block_length, "threshold": threshold, "cache": cache}
    workload = Workload.tasks(tasks, n=number, seed=seed) if prompts is None else Workload.from_jsonl(prompts)
    found = check(loaded, workload, **options)
    print(f"{loaded.name} in {str(loaded.dtype).removeprefix('torch.')} on {loaded.device}: {found.requests} requests")
    print(found.table.to_string())
    agreement = {way: found.agreement(way) for way in found.differences}
    last_line({"requests": found.requests, "agreement": agreement, "lowest": min(agreement.values())})
