"""``blockserve run``: prompts, built-in problems or a length trace under a preset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from blockserve.cli.app import app, last_line, option, whole
from blockserve.core import ConfigError
from blockserve.reprs import readable

if TYPE_CHECKING:
    from blockserve.engine import Run


@app.command()
def run(
    model: Annotated[str, typer.Option(help="Built-in name or checkpoint folder.")] = "tiny-llada",
    tasks: Annotated[str | None, typer.Option(help='Built-in families, "a,b" or "all". Default: arithmetic.')] = None,
    prompts: Annotated[Path | None, typer.Option(help="JSONL of your own: id, prompt, max_new_tokens.")] = None,
    lengths: Annotated[Path | None, typer.Option(help="A length trace (CSV or JSONL): random prompts.")] = None,
    benchmark: Annotated[str | None, option("gsm8k, humaneval, mbpp, math, truthfulqa.")] = None,
    benchmark_path: Annotated[Path | None, option("Its public file; without one, by the datasets package.")] = None,
    exemplars: Annotated[Path | None, option("Examples for its prompts; otherwise its training split.")] = None,
    shots: Annotated[int | None, option("Examples a prompt; otherwise as many as in the paper.")] = None,
    arrivals: Annotated[
        str | None, option("poisson:RATE, gamma:RATE,cv=2, uniform:…, bursts:…, closed:CLIENTS.")
    ] = None,
    number: Annotated[int, typer.Option("-n", "--requests", help="Problems a family, at most.")] = 64,
    seed: Annotated[int, typer.Option(help="Seed of the problems.")] = 0,
    preset: Annotated[str, typer.Option(help="vanilla … blockserve-budget; see README.")] = "blockserve-budget",
    slots: Annotated[int | None, option("Rows at most.")] = None,
    token_budget: Annotated[str | None, option('β, the box\'s largest cost in tokens, or "auto".')] = None,
    order: Annotated[str | None, option("longest_first, shortest_first, fifo.")] = None,
    fill: Annotated[str | None, option("sand, sand_strict, head_of_line.")] = None,
    quantum: Annotated[str | None, option("block, request.")] = None,
    reserve: Annotated[bool | None, option("Admit only what fits at every later block.")] = None,
    max_wait_cycles: Annotated[int | None, option("Longest wait before all others are held back.")] = None,
    block_length: Annotated[int | None, option("L, tokens of a block.")] = None,
    threshold: Annotated[float | None, option("Commit rule threshold(τ).")] = None,
    quota: Annotated[int | None, option("Commit rule quota(S).")] = None,
    factor: Annotated[float | None, option("Commit rule factor(f).")] = None,
    cache: Annotated[str | None, option("dual, prefix, none.")] = None,
    suffix: Annotated[str | None, option('Masked blocks shown after the active one: 0, 1, … or "full".')] = None,
    eos: Annotated[str | None, option("settled, block, ignore.")] = None,
    temperature: Annotated[float | None, option("0 is greedy.")] = None,
    head: Annotated[str | None, option("Logits of the block or of the full width.")] = None,
    compaction: Annotated[bool | None, option("Finished rows leave the active tensor.")] = None,
    max_new_tokens: Annotated[
        int | None, option("Limit in tokens of requests that state none (80), of tasks and benchmarks (their own).")
    ] = None,
    device: Annotated[str | None, option("cpu, cuda, …")] = None,
    dtype: Annotated[str | None, option("float32, float64, bfloat16, float16.")] = None,
    chat: Annotated[bool, option("Prompts are a user's turns, by the checkpoint's own template.")] = False,
    trace: Annotated[Path | None, typer.Option(help="Write the trace here as it happens.")] = None,
    trace_level: Annotated[str, typer.Option(help="summary, cycle, token.")] = "cycle",
    clock: Annotated[str, typer.Option(help="wall, or virtual: idle time is skipped.")] = "wall",
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
    options["token_budget"] = whole("token-budget", token_budget, "auto")
    options["suffix"] = whole("suffix", suffix, "full")
    check_int("baseline_slots", baseline_slots, 1)
    sources = {"--prompts": prompts, "--tasks": tasks, "--lengths": lengths, "--benchmark": benchmark}
    if len(named := [name for name, value in sources.items() if value is not None]) > 1:
        raise ConfigError(f"{' and '.join(named)} exclude each other; give one of them")
    benchmark_options = {"path": benchmark_path, "exemplars": exemplars, "shots": shots}
    if benchmark is None and any(value is not None for value in benchmark_options.values()):
        raise ConfigError("--benchmark-path, --exemplars and --shots belong to --benchmark; name one")
    for path in (trace, outputs):  # before any work is done
        if path is not None:
            check_writable(path, force=force)
    if benchmark is not None:
        benchmark_options |= {"max_new_tokens": max_new_tokens}
        workload = Workload.benchmark(benchmark, n=number, seed=seed, **benchmark_options)
    elif prompts is not None:
        workload = Workload.from_jsonl(prompts)
    elif lengths is not None:
        workload = Workload.from_trace(read_lengths(lengths).first(number), seed=seed)
    else:
        workload = Workload.tasks(tasks or "arithmetic", n=number, seed=seed, max_new_tokens=max_new_tokens)
    if arrivals is not None:
        workload = workload.arriving(arrivals, seed)
    engine = Engine(
        model,
        preset,
        device=device,
        dtype=dtype,
        chat=chat,
        max_new_tokens=80 if max_new_tokens is None else max_new_tokens,
        trace_level=trace_level,
        clock=clock,
        seed=seed,
        **options,
    )
    result = engine.run(workload, trace=trace, force=force, skip_invalid=skip_invalid, progress=progress)
    _print_run(result, baseline_slots, show_texts=prompts is not None)
    if outputs is not None:
        _write_outputs(result, outputs)
    _finish_run(result, baseline_slots)


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
        table.add_row(str(name), readable(value))
    console.print(table)


def _write_outputs(result: Run, path: Path) -> None:
    with path.open("w", encoding="utf-8") as file:
        for c in result.completions:
            line = {"id": c.request_id, "text": c.text, "reason": c.reason, "correct": c.correct}
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


def _finish_run(result: Run, baseline_slots: int) -> None:
    from blockserve.tracing.metrics import summarize, waste

    last_line(summarize(result.trace, baseline_slots) | {"waste": waste(result.trace)})
    if result.trace.end.status == "interrupted":
        raise typer.Exit(130)
