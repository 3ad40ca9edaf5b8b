"""What the experiment notebooks share: benches, repeats, intervals, results, and the numbers of a run."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

from blockserve.core import ConfigError, UnknownNameError
from blockserve.studies import experiment
from blockserve.studies.experiment import (
    Arm,
    bound_of,
    closing_table,
    grouped,
    measure,
    open_bench,
    refuse_engine,
    rounds,
    safe_budget,
)
from blockserve.studies.results import Interval, compared, interval, write_results
from blockserve.studies.serving import (
    admission,
    answer_times,
    capacity,
    in_time,
    latency_by_thirds,
    over_repeats,
    sustained,
)
from blockserve.workload.lengths import Lengths

NAMES = {"real": ("tiny-llada", "arithmetic"), "simulated": ("llada-8b", "truthfulqa")}
LENGTHS = Lengths("traced", np.arange(6) * 2.0, np.full(6, 40), np.array([10, 20, 30, 40, 50, 60]))


@pytest.fixture(scope="module")
def bench():
    return open_bench("simulated", **NAMES, n=12)


def test_an_interval_is_students_t():
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2 and found.half == pytest.approx(4.303 / 3**0.5)
    assert str(found) == "2.00 ± 2.48" and f"{found:.0%}" == "200% ± 248%"
    assert interval([5.0]) == Interval(5.0, None) and str(interval([5.0])) == "5.00"
    assert found / 2 == Interval(1.0, found.half / 2) and Interval(3.0, None) / 2 == Interval(1.5, None)
    assert interval(range(40)).half == pytest.approx(2.02 * np.std(range(40), ddof=1) / 40**0.5, rel=2e-3)


def test_intervals_that_overlap_show_no_difference():
    assert compared(Interval(5, 1), Interval(2.9, 1)) == "higher"
    assert compared(Interval(2.9, 1), Interval(5, 1)) == "lower"
    assert compared(Interval(5, 1), Interval(3.1, 1)) == "not shown to differ"
    assert compared(Interval(5, None), Interval(1, 0.1)) == "not shown to differ", "one run is no evidence"


def test_arms_alternate_and_every_repeat_has_its_own_requests(bench, monkeypatch):
    ran = []
    original = experiment.SimulatedBench.run
    monkeypatch.setattr(
        experiment.SimulatedBench,
        "run",
        lambda self, arm, seed: ran.append((arm.preset, seed)) or original(self, arm, seed),
    )
    found = measure(bench, {"a": Arm.of("static"), "b": Arm.of("block-fifo")}, repeats=2, seed=5)
    assert ran == [("static", 5), ("block-fifo", 5), ("static", 6), ("block-fifo", 6)]
    digests = {trace.run.workload["digest"] for trace in found.traces.values()}
    assert len(digests) == 1 and found.traces["a"].run.seed == 5
    pairs = zip(found.values("a", "tokens_per_s"), found.values("b", "tokens_per_s"), strict=True)
    assert found.ratio("a", "b") == interval([b / a for a, b in pairs])
    assert found.work("a") > found.work("b")


def test_a_traced_workload_keeps_its_gaps_at_the_wanted_rate():
    bench = open_bench("simulated", **NAMES, n=3, limit=64, lengths=LENGTHS)
    trace = bench.run(Arm.of("block-fifo", rate=5.0), 0)
    assert [r.arrival for r in trace.request_records] == pytest.approx([0, 0.2, 0.4, 0.6, 0.8, 1.0])
    assert [c.valid_tokens for c in sorted(trace.completion_records, key=lambda c: c.id)] == [10, 20, 30, 40, 50, 60]


def test_a_mode_that_means_nothing_is_refused_in_one_line():
    with pytest.raises(ConfigError, match="engine='real' means nothing here: no GPU; use engine='simulated'"):
        refuse_engine("real", "simulated", "no GPU")
    with pytest.raises(ConfigError, match="the text behind it is unknown"):
        open_bench("real", **NAMES, n=3, lengths=LENGTHS)
    for wrong in ("reel", ""):
        with pytest.raises((ConfigError, UnknownNameError)):
            open_bench(wrong, **NAMES, n=3)
    assert refuse_engine("simulated", "simulated", "") is None


def test_a_preset_is_bound_by_its_own_kind():
    assert bound_of("static", 4, 99) == {"slots": 4}
    assert bound_of("blockserve-budget", 4, 99) == {"token_budget": 99}
    with pytest.raises(UnknownNameError):
        bound_of("statik", 4, 99)


def test_tables_say_what_their_seconds_are_and_group_by_what_was_varied():
    table = closing_table({("static", 4): {"x": 1}, "b": {"x": 2}}, simulated=True)
    assert list(table.index) == ["static 4", "b"] and set(table["times"]) == {"simulated"}
    assert set(closing_table({"a": {}}, simulated=False)["times"]) == {"measured"}
    assert closing_table({"a": {"ratio": "2.00 ± 0.10"}}, simulated=True).loc["a", "ratio"].split(" ") == [
        "2.00\xa0±\xa00.10"
    ]
    assert grouped({(1, "a"): "t", (1, "b"): "u", (2, "a"): "v"}) == {1: {"a": "t", "b": "u"}, 2: {"a": "v"}}


def test_measured_seconds_are_timings_and_predicted_ones_are_results(tmp_path):
    facts = {"seed": 3, "dtype": "float32", "workload": {"digest": "d"}}
    path = tmp_path / "r.json"
    for device, simulated in (("cpu", False), ("simulated: H200", True)):
        trace = SimpleNamespace(run=SimpleNamespace(device=device, **facts))
        seconds = {"speedup": Interval(2.0, 0.5)}
        write_results({"cycles": np.int64(7)}, {"n": 1}, trace, seconds=seconds, path=path)
        results = json.loads(path.read_text())
        assert results["simulated"] is simulated and results["headline"]["cycles"] == 7
        assert results["timings"] == ({} if simulated else {"speedup": [2.0, 0.5]})
        assert ("speedup" in results["headline"]) is simulated
        assert results["manifest"]["seed"] == 3 and "python" in results["manifest"]["versions"]


def test_the_safe_budget_is_the_memory_of_the_widest_request_of_all_repeats(bench):
    runs = [bench.run(Arm.of("static", slots=4), seed) for seed in (5, 6, 7)]
    widest = max(r.prompt_tokens + 256 for trace in runs for r in trace.request_records)
    assert safe_budget(bench, 4, repeats=3, seed=5) == 4 * widest
    with pytest.raises(ConfigError, match="slots"):
        safe_budget(bench, 0, repeats=1, seed=0)


def test_capacity_is_that_of_the_whole_run(bench):
    trace = bench.run(Arm.of("static", slots=4), 0)
    assert capacity(trace) == pytest.approx(12 / trace.end.wall)


def test_measure_keeps_of_every_repeat_the_numbers_asked_for(bench):
    arms = {"a": Arm.of("static", slots=3), "b": Arm.of("block-fifo", slots=3)}
    found = measure(bench, arms, repeats=2, seed=3, numbers=admission)
    for key in arms:
        runs = [traces[key] for traces in rounds(bench, arms, repeats=2, seed=3)]
        assert found.values(key, "rows_mean") == [np.mean([c.batch for c in run.cycle_records]) for run in runs]


def test_admission_counts_rows_budget_and_preemptions(bench):
    budget = safe_budget(bench, 3, repeats=1, seed=0)
    trace = bench.run(Arm.of("blockserve-budget", token_budget=budget), 0)
    found = admission(trace)
    assert found["rows_most"] == max(len(c.rows) for c in trace.cycle_records)
    assert 0 < found["budget_used_mean"] <= found["budget_used_most"] <= 1
    assert admission(bench.run(Arm.of("static"), 0))["budget_used_mean"] is None
    with pytest.raises(ConfigError, match="without cycles"):
        admission(SimpleNamespace(cycle_records=()))


def test_thirds_are_of_the_same_requests_and_follow_the_length_at_block_granularity(bench):
    traces = {name: bench.run(Arm.of(name, slots=12), 1) for name in ("static", "block-fifo")}
    thirds = latency_by_thirds(traces)
    static, block = thirds.loc["static"], thirds.loc["block-fifo"]
    assert static["service_short_s"] == static["service_long_s"]  # one group: all leave together
    assert block["service_short_s"] <= block["service_middle_s"] <= block["service_long_s"]
    assert block["service_short_s"] < static["service_short_s"]


def test_sustained_is_the_last_rate_before_the_first_that_fails(bench):
    runs = {rate: bench.run(Arm.of("block-fifo", rate=rate), 0) for rate in (0.1, 50.0)}
    limit = max(c.evicted - c.arrival for c in runs[0.1].completion_records)
    assert in_time(runs[0.1], limit) == 1 and in_time(runs[50.0], limit) < 0.95
    for within, held in ((limit, 0.1), (1e-9, None), (1e9, 50.0)):
        assert sustained({rate: in_time(trace, within) for rate, trace in runs.items()}) == held


def test_over_repeats_every_number_has_its_interval_over_other_requests(bench):
    arms = {(rate, name): Arm.of(name, rate=rate) for rate in (0.1, 50.0) for name in ("static", "block-fifo")}
    runs = list(rounds(bench, arms, repeats=2, seed=3))
    found = over_repeats(lambda t: answer_times(t, 9.0), runs)
    assert list(found.index) == list(arms) and list(found) == ["goodput", "in_time", "p50", "p99"]
    for key in arms:
        lives = [sorted(c.evicted - c.arrival for c in traces[key].completion_records) for traces in runs]
        assert found.loc[key, "in_time"] == interval([sum(t <= 9.0 for t in own) / len(own) for own in lives])
        assert found.loc[key, "p50"].mean == pytest.approx(np.mean([np.median(own) for own in lives]))
    once = over_repeats(latency_by_thirds, runs[:1])
    assert all(cell.half is None for cell in once.to_numpy().ravel())
    with pytest.raises(ConfigError, match="repeats"):
        next(rounds(bench, arms, repeats=0, seed=3))
