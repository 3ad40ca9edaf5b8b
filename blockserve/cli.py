"""The ``blockserve`` command. Tables for people; the last line of standard output is one JSON object.

A mistake ends in one line on standard error and exit code 2.
"""

from __future__ import annotations

import json
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockserve import __version__
from blockserve.core import BlockServeError, ConfigError

if TYPE_CHECKING:
    from blockserve.engine import Run

app = typer.Typer(
    help="Block-grained continuous batching for diffusion language models: run it, see it, measure it.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Entry point: every user mistake becomes one line and exit code 2; an interrupt exits with 130."""
    warnings.showwarning = lambda message, *_, **__: print(f"blockserve: warning: {message}", file=sys.stderr)
    try:
        sys.exit(app(standalone_mode=False) or 0)
    except BlockServeError as error:
        _fail(str(error))
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


def _last_line(values: dict[str, Any]) -> None:
    print(json.dumps(values, ensure_ascii=False))


@app.callback(invoke_without_command=True)
def _root(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        print(__version__)
        raise typer.Exit


# --------------------------------------------------------------------------------------------------- run


def _option(default_from_preset: str) -> Any:
    return typer.Option(help=default_from_preset, show_default=False)


@app.command()
def run(
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    tasks: Annotated[str | None, typer.Option(help='Built-in families, "a,b" or "all". Default: arithmetic.')] = None,
    prompts: Annotated[Path | None, typer.Option(help="JSONL of your own: id, prompt, max_new_tokens.")] = None,
    lengths: Annotated[Path | None, typer.Option(help="A length trace (CSV or JSONL): random prompts.")] = None,
    arrivals: Annotated[
        str | None, _option("poisson:RATE, gamma:RATE,cv=2, uniform:…, bursts:…, closed:CLIENTS.")
    ] = None,
    number: Annotated[int, typer.Option("-n", "--requests", help="Problems a family.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the problems.")] = 0,
    preset: Annotated[str, typer.Option(help="vanilla … blockserve-budget; see README.")] = "blockserve-budget",
    slots: Annotated[int | None, _option("Rows at most.")] = None,
    token_budget: Annotated[str | None, _option('β, the box\'s largest cost in tokens, or "auto".')] = None,
    order: Annotated[str | None, _option("longest_first, shortest_first, fifo.")] = None,
    fill: Annotated[str | None, _option("sand, sand_strict, head_of_line.")] = None,
    quantum: Annotated[str | None, _option("block, request.")] = None,
    reserve: Annotated[bool | None, _option("Admit only what fits at every later block.")] = None,
    max_wait_cycles: Annotated[int | None, _option("Longest wait before all others are held back.")] = None,
    block_length: Annotated[int | None, _option("L, tokens of a block.")] = None,
    threshold: Annotated[float | None, _option("Commit rule threshold(τ).")] = None,
    quota: Annotated[int | None, _option("Commit rule quota(S).")] = None,
    factor: Annotated[float | None, _option("Commit rule factor(f).")] = None,
    cache: Annotated[str | None, _option("dual, prefix, none.")] = None,
    suffix: Annotated[str | None, _option('Masked blocks shown after the active one: 0, 1, … or "full".')] = None,
    eos: Annotated[str | None, _option("settled, block, ignore.")] = None,
    temperature: Annotated[float | None, _option("0 is greedy.")] = None,
    head: Annotated[str | None, _option("Logits of the block or of the full width.")] = None,
    compaction: Annotated[bool | None, _option("Finished rows leave the active tensor.")] = None,
    max_new_tokens: Annotated[int, typer.Option(help="Limit of requests that state none.")] = 80,
    device: Annotated[str | None, _option("cpu, cuda, …")] = None,
    dtype: Annotated[str | None, _option("float32, float64, bfloat16, float16.")] = None,
    trace: Annotated[Path | None, typer.Option(help="Write the trace here as it happens.")] = None,
    trace_level: Annotated[str, typer.Option(help="summary, cycle, token.")] = "cycle",
    outputs: Annotated[Path | None, typer.Option(help="Write id, text and reason as JSONL.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite existing files.")] = False,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Reject bad requests, run the rest.")] = False,
    baseline_slots: Annotated[int, typer.Option(help="Baseline size of the effective compute ratio.")] = 8,
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Run prompts or built-in problems under a preset; print what it did."""
    from blockserve.core import check_int
    from blockserve.engine import Engine
    from blockserve.tracing.trace import check_writable
    from blockserve.workload.lengths import read_lengths
    from blockserve.workload.sources import Workload

    names = "order fill quantum reserve max_wait_cycles slots threshold quota factor"
    given = locals()
    options = {name: given[name] for name in f"{names} block_length cache eos temperature head compaction".split()}
    options["token_budget"] = _whole("token-budget", token_budget, "auto")
    options["suffix"] = _whole("suffix", suffix, "full")
    check_int("baseline_slots", baseline_slots, 1)
    sources = {"--prompts": prompts, "--tasks": tasks, "--lengths": lengths}
    if len(named := [name for name, value in sources.items() if value is not None]) > 1:
        raise ConfigError(f"{' and '.join(named)} exclude each other; give one of them")
    for path in (trace, outputs):  # before any work is done
        if path is not None:
            check_writable(path, force=force)
    if prompts is not None:
        workload = Workload.from_jsonl(prompts)
    elif lengths is not None:
        workload = Workload.from_trace(read_lengths(lengths).first(number), seed=seed)
    else:
        workload = Workload.tasks(tasks or "arithmetic", n=number, seed=seed)
    if arrivals is not None:
        workload = workload.arriving(arrivals, seed)
    engine = Engine(
        model,
        preset,
        device=device,
        dtype=dtype,
        max_new_tokens=max_new_tokens,
        trace_level=trace_level,
        seed=seed,
        **options,
    )
    result = engine.run(workload, trace=trace, force=force, skip_invalid=skip_invalid, progress=progress)
    _print_run(result, baseline_slots, show_texts=prompts is not None)
    if outputs is not None:
        _write_outputs(result, outputs)
    _finish_run(result, baseline_slots)


def _whole(name: str, text: str | None, word: str) -> int | str | None:
    """An option that is a whole number or one word."""
    if text is None or text == word:
        return text
    try:
        return int(text)
    except ValueError:
        raise ConfigError(f'--{name} must be a whole number or "{word}", got {text!r}') from None


def _print_run(result: Run, baseline_slots: int, *, show_texts: bool) -> None:
    from rich.console import Console
    from rich.table import Table

    from blockserve.tracing.metrics import latency_quantiles

    console = Console(highlight=False)
    if show_texts:
        table = Table("id", "why it ended", "tokens", "text", title="outputs")
        for c in result.completions:
            table.add_row(c.request_id, c.reason, str(c.valid_tokens), c.text or c.message)
        console.print(table)
    if any(c.arrival for c in result.completions):
        print(latency_quantiles(result.trace).to_string(float_format="{:.3f} s".format))
    table = Table("metric", "value", title=f"{result.trace.run.preset}, {result.trace.run.model['name']}")
    for name, value in result.summary(baseline_slots).iloc[:, 0].items():
        table.add_row(str(name), _readable(value))
    console.print(table)


def _readable(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _write_outputs(result: Run, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for c in result.completions:
            line = {"id": c.request_id, "text": c.text, "reason": c.reason, "correct": c.correct}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _finish_run(result: Run, baseline_slots: int) -> None:
    from blockserve.tracing.metrics import summarize, waste

    _last_line(summarize(result.trace, baseline_slots) | {"waste": waste(result.trace)})
    if result.trace.end.status == "interrupted":
        raise typer.Exit(130)


# ----------------------------------------------------------------------------------------------- reports


@app.command()
def report(
    name: Annotated[str, typer.Argument(help="A notebook that ships, or a path to one.")],
    parameter: Annotated[list[str] | None, typer.Option("-p", "--parameter", help="key=value")] = None,
    out: Annotated[Path, typer.Option(help="Folder for the report.")] = Path("reports"),
    progress: Annotated[bool, typer.Option(help="Show a progress bar.")] = True,
) -> None:
    """Run a notebook and write it as one HTML file that opens offline."""
    from blockserve.report import parse_assignments, run_report

    result = run_report(name, out, parse_assignments(parameter or []), progress=progress)
    size = result.html.stat().st_size
    print(f"{result.html}  ({size / 1e6:.1f} MB, {result.seconds:.0f} s; opens offline)")
    for key, value in result.results.items():
        if not isinstance(value, (dict, list)):
            print(f"  {key}: {_readable(value)}")
    values = {"report": str(result.html), "notebook": str(result.notebook), "seconds": round(result.seconds, 2)}
    _last_line(values | {"html_bytes": size, "results": result.results})


@app.command()
def lab(
    folder: Annotated[Path, typer.Argument(help="Where to put the notebooks.")] = Path("blockserve-notebooks"),
    launch: Annotated[bool, typer.Option(help="Open JupyterLab after copying.")] = True,
) -> None:
    """Copy the notebooks and open JupyterLab on them."""
    from blockserve.report import copy_notebooks, launch_lab

    done = copy_notebooks(folder)
    print(f"{len(done.copied)} notebooks copied to {done.target.resolve()}")
    for path in done.kept:
        print(f"  kept {path.name}: it differs from ours (your work is not overwritten)")
    code = launch_lab(folder) if launch else 0
    _last_line({"folder": str(done.target.resolve()), "copied": len(done.copied), "kept": [p.name for p in done.kept]})
    raise typer.Exit(code)


# ------------------------------------------------------------------------------------ policies and budgets


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
    _last_line({"presets": presets, "orders": list(ORDERS), "fills": list(FILLS)})


@app.command()
def budget(
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    preset: Annotated[str, typer.Option(help="Whose way of executing is measured.")] = "blockserve-budget",
    block_length: Annotated[int | None, _option("L, tokens of a block.")] = None,
    memory: Annotated[
        float | None, _option("Share of memory to use: 0.9 measured, 0.5 of what is free on a CPU.")
    ] = None,
    device: Annotated[str | None, _option("cpu, cuda, …")] = None,
    dtype: Annotated[str | None, _option("float32, float64, bfloat16, float16.")] = None,
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
    _last_line({"budget": fit.budget, "method": how, "bytes_per_cell": fit.bytes_per_cell, "share": fit.share})


# ------------------------------------------------------------------------------------ models and training


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
    _last_line({"models": found})


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

    chosen = training.get_recipe(recipe)
    result = training.train(chosen, out, resume=resume, max_steps=max_steps)
    folder = out / "checkpoint"
    measured = training.export(result, folder, problems=problems)
    print(f"{folder}: {result.steps:,} of {chosen.steps:,} steps, {result.minutes:.1f} minutes")
    for m in measured:
        print(f"  {m.task}, L {m.block_length}: {m.accuracy:.1%} right of {m.problems}")
    values = {"recipe": recipe, "checkpoint": str(folder), "steps": result.steps, "minutes": result.minutes}
    _last_line(values | {"measured": [asdict(m) for m in measured]})


if __name__ == "__main__":
    main()
