"""``blockserve policies`` and ``blockserve budget``: what can be chosen, and how large β may be."""

from __future__ import annotations

from typing import Annotated

import typer

from blockserve.cli.app import app, last_line, option


@app.command()
def policies() -> None:
    """List the presets and the parts they are made of."""
    from blockserve.presets import preset_table
    from blockserve.scheduling.admission import FILLS
    from blockserve.scheduling.queue import ORDERS

    presets = preset_table()
    print(
        "presets (one change a line): order · bound · fill · quantum | cache · rule · suffix · eos | head · compaction"
    )
    for p in presets:
        when = " · ".join(p[k] for k in ("order", "bound", "fill", "quantum"))
        what = " · ".join(p[k] for k in ("cache", "rule", "suffix", "eos"))
        print(f"  {p['preset']:<18} {when:<42} | {what:<32} | {p['head']:<5} · {p['compaction']:<3}  {p['about']}")
    print(f"orders: {', '.join(ORDERS)}\nfills: {', '.join(FILLS)}\nbounds: slots, budget\nquanta: block, request")
    last_line({"presets": presets, "orders": list(ORDERS), "fills": list(FILLS)})


@app.command()
def budget(
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    preset: Annotated[str, typer.Option(help="Whose way of executing is measured.")] = "blockserve-budget",
    block_length: Annotated[int | None, option("L, tokens of a block.")] = None,
    memory: Annotated[
        float | None, option("Share of memory to use: 0.9 measured, 0.5 of what is free on a CPU.")
    ] = None,
    device: Annotated[str | None, option("cpu, cuda, …")] = None,
    dtype: Annotated[str | None, option("float32, float64, bfloat16, float16.")] = None,
) -> None:
    """Work out the largest safe token budget: measured on an accelerator, analytic on a CPU."""
    from blockserve.checkpoints import load_model
    from blockserve.execution.memory import memory_fit
    from blockserve.presets import resolve

    config = resolve(preset, {"block_length": block_length})
    loaded = load_model(model, device=device, dtype=dtype)
    fit = memory_fit(loaded, config.decode, config.execution, memory)
    for cells, peak in fit.points:
        print(f"  {cells:>8,} cells: peak {peak / 2**20:,.1f} MiB")
    how = "measured" if fit.points else "analytic"
    print(f"{how}: {fit.base_bytes / 2**20:,.1f} MiB + {fit.bytes_per_cell / 2**10:,.2f} KiB a cell")
    print(f"largest safe token budget in {fit.share:.0%} of {fit.memory_bytes / 2**30:,.1f} GiB: {fit.budget:,} tokens")
    if fit.cap == fit.budget:
        print(f"(memory allows more; capped at {fit.cap:,}, eight rows of the whole context)")
    last_line({"budget": fit.budget, "method": how, "bytes_per_cell": fit.bytes_per_cell, "share": fit.share})
