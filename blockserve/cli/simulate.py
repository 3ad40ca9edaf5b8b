"""``blockserve simulate``, ``replay``, ``diff``, ``paper``: the same scheduler without a model, in predicted time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from blockserve.cli.app import app, last_line, option, whole
from blockserve.reprs import readable

if TYPE_CHECKING:
    from blockserve.tracing import Trace

WITH_CYCLES = 20_000  # requests up to which a simulation keeps its cycles


@app.command()
def simulate(
    model: Annotated[str, typer.Option(help="Shape and calibration: llada-8b, dream-7b.")] = "llada-8b",
    device: Annotated[str, typer.Option(help="Device of the roofline.")] = "h200",
    lengths: Annotated[str, typer.Option(help="A benchmark (gsm8k, …) or the path of a length trace.")] = "gsm8k",
    number: Annotated[int | None, typer.Option("-n", "--requests", help="Default: the benchmark's own.")] = None,
    limit: Annotated[int, typer.Option(help="New tokens at most.")] = 256,
    runaways: Annotated[float, typer.Option(help="Share of requests that stop only at the limit.")] = 0.0,
    arrivals: Annotated[str | None, option("poisson:RATE, gamma:RATE,cv=2, … Default: all at once.")] = None,
    preset: Annotated[str, typer.Option(help="See: blockserve policies.")] = "blockserve-budget",
    slots: Annotated[int | None, option("Rows at most.")] = None,
    token_budget: Annotated[str | None, option('β in tokens, or "auto": what the device\'s memory holds.')] = None,
    order: Annotated[str | None, option("longest_first, shortest_first, fifo.")] = None,
    fill: Annotated[str | None, option("sand, sand_strict, head_of_line.")] = None,
    quantum: Annotated[str | None, option("block, request.")] = None,
    max_wait_cycles: Annotated[int | None, option("Longest wait before all others are held back.")] = None,
    block_length: Annotated[int, typer.Option(help="L, tokens of a block.")] = 32,
    seed: Annotated[int, typer.Option(help="Seed of lengths, steps and arrivals.")] = 0,
    trace: Annotated[Path | None, typer.Option(help="Write the trace here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
    skip_invalid: Annotated[bool, typer.Option("--skip-invalid", help="Reject bad requests, run the rest.")] = False,
    baseline_slots: Annotated[int, typer.Option(help="Baseline size of the effective compute ratio.")] = 8,
) -> None:
    """Serve paper-scale requests in predicted time: no model, no GPU."""
    from dataclasses import replace

    from blockserve.simulation.catalogue import roofline
    from blockserve.studies.bounds import lower_bound
    from blockserve.studies.simulate import simulate as run
    from blockserve.workload.arrivals import open_times

    names = "slots order fill quantum max_wait_cycles".split()
    given = locals()
    options = {name: given[name] for name in names} | {"token_budget": whole("token-budget", token_budget, "auto")}
    profile = _profile(model, lengths, number, limit, runaways, block_length, seed)
    if arrivals is not None:
        profile = replace(profile, arrivals=open_times(arrivals, len(profile), seed))
    level = "cycle" if len(profile) <= WITH_CYCLES else "summary"
    cost = roofline(model, device)
    result = run(
        profile,
        preset,
        cost,
        level=level,
        seed=seed,
        path=trace,
        force=force,
        skip_invalid=skip_invalid,
        **options,
    )
    numbers = result.metrics(baseline_slots)
    _print_numbers(f"{preset}, {len(profile):,} requests: schedule computed, times predicted", numbers)
    bound = lower_bound(result.trace, cost).seconds if level == "cycle" and result.trace.cycle_records else None
    if bound:
        print(f"no schedule can be faster than {bound:,.1f} s; this one is {numbers['wall_s'] / bound - 1:.0%} longer")
    last_line(numbers | {"simulated": True, "bound_s": bound})


def _profile(
    model: str, lengths: str, number: int | None, limit: int, runaways: float, block_length: int, seed: int
) -> Any:
    """A benchmark's lengths, or those of a length trace with its arrivals."""
    from blockserve.simulation.benchmarks import benchmark_profile
    from blockserve.simulation.catalogue import CALIBRATED
    from blockserve.simulation.profile import Profile
    from blockserve.workload.lengths import read_lengths

    if Path(lengths).suffix not in (".csv", ".jsonl"):
        return benchmark_profile(
            lengths, number, limit=limit, block_length=block_length, model=model, runaways=runaways, seed=seed
        )
    traced = read_lengths(lengths)
    traced = traced if number is None else traced.first(number)
    return Profile.synthetic(
        traced.prompt_tokens,
        traced.output_tokens,
        limit,
        block_length=block_length,
        steps=CALIBRATED[model].steps_for(block_length),
        runaways=runaways,
        arrivals=traced.arrival,
        seed=seed,
        name=traced.name,
    )


@app.command()
def replay(
    trace: Annotated[Path, typer.Argument(help="A trace that was recorded with cycles.")],
    preset: Annotated[str, typer.Option(help="The policy to try.")] = "blockserve-budget",
    slots: Annotated[int | None, option("Rows at most.")] = None,
    token_budget: Annotated[int | None, option("β in tokens.")] = None,
    order: Annotated[str | None, option("longest_first, shortest_first, fifo.")] = None,
    fill: Annotated[str | None, option("sand, sand_strict, head_of_line.")] = None,
    quantum: Annotated[str | None, option("block, request.")] = None,
    max_wait_cycles: Annotated[int | None, option("Longest wait before all others are held back.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write the replayed trace here.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """What if the recorded requests had run under another policy? The schedule is exact, times are predicted."""
    from blockserve.simulation.fitting import fit_cost
    from blockserve.studies.bounds import lower_bound
    from blockserve.studies.diff import diff as compare_schedules
    from blockserve.studies.replay import replay as run
    from blockserve.tracing import Trace
    from blockserve.tracing.metrics import summarize

    recorded = Trace.load(trace)
    given = locals()
    options = {n: given[n] for n in "slots token_budget order fill quantum max_wait_cycles".split()}
    cost = fit_cost(recorded)
    replayed = run(recorded, preset, cost=cost, path=out, force=force, **options)
    numbers, bound = summarize(replayed), lower_bound(replayed, cost)
    _print_numbers(f"{preset}, replayed from {recorded.run.preset}", numbers)
    parting = compare_schedules(recorded, replayed)
    print(f"recorded {summarize(recorded)['wall_s']:.3f} s (measured), replayed {numbers['wall_s']:.3f} s (predicted)")
    print(f"no schedule can be faster than {bound.seconds:.3f} s; this one is {bound.gap:.0%} longer")
    print(f"first difference: {parting or 'none'}")
    parts = None if parting is None else {"cycle": parting.cycle, "what": parting.what}
    last_line(numbers | {"simulated": True, "bound_s": bound.seconds, "recorded_s": _wall(recorded), "parts": parts})


def _wall(trace: Trace) -> float:
    from blockserve.tracing.metrics import wall_seconds

    return wall_seconds(trace)


@app.command()
def diff(
    first: Annotated[Path, typer.Argument(help="A trace.")],
    second: Annotated[Path, typer.Argument(help="Another of the same requests.")],
) -> None:
    """The first cycle where two runs of the same requests part, and why."""
    from blockserve.studies.diff import diff as compare_schedules
    from blockserve.tracing import Trace

    parting = compare_schedules(Trace.load(first), Trace.load(second))
    print(parting or "the two schedules are the same")
    last_line({"same": parting is None} | ({} if parting is None else vars(parting)))


@app.command()
def paper() -> None:
    """Every number of the paper beside the simulator's prediction of it."""
    from blockserve.studies.paper import MISSES, paper_study

    study = paper_study()
    table = study.table.drop(columns=["group"])
    print(table.to_string(index=False, float_format="{:,.3f}".format))
    for group, errors in study.summary().items():
        print(f"\n{group}: median error {errors['median_error']:.1%}, worst {errors['worst_error']:.1%}")
        print(f"  {MISSES[group]}" if group in MISSES else "  within what was asked")
    last_line(study.summary())


def _print_numbers(title: str, numbers: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("metric", "value", title=title)
    for name, value in numbers.items():
        table.add_row(name, readable(value))
    Console(highlight=False).print(table)
