"""The experiment notebooks' quick runs: headline numbers, exactly where simulated; marks; modes that are refused."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import nbformat
import pytest

from blockserve.report import ReportError, available, parameters, run_report

SIMULATED = {
    "10_rq1_throughput_quality": {
        "token_budget_llada-8b_gsm8k": 7284,
        "work_saved_implementation_llada-8b_truthfulqa": [6.0117401, 0.81116590],
        "work_saved_scheduling_llada-8b_truthfulqa": [1.0924199, 0.027174244],
        "row_tokens_blockserve-budget_llada-8b_gsm8k": 565476,
        "speedup_scheduling_llada-8b_gsm8k": [1.2444604, 0.034621133],
        "speedup_static-eos_llada-8b_truthfulqa": [3.7949058, 0.44126028],
    },
    "11_rq2_latency_by_length": {
        "valid_tokens_static": 12807,
        "service_short_s_static": [3.1766712, 7.8404352],
        "service_short_s_block-fifo": [1.3130443, 0.057994583],
        "service_long_s_block-fifo": [3.3413820, 2.1002048],
        "service_long_over_short_block-fifo": [2.5452275, 1.7119104],
    },
    "12_rq3_batch_scaling": {
        "work_saved_block-fifo_at_8": 0.069184646,
        "work_saved_blockserve-fixed_at_8": 0.16631461,
        "speedup_blockserve-fixed_at_8": [1.0996224, 0.098048117],
        "tokens_per_s_static_at_8": 278.26186,
    },
    "13_rq4_admission_capacity": {
        "rows_over_slots_8": [1.2406915, 0.11831117],
        "rows_most_8": 13,
        "preemptions_8": [5.5, 6.355],
        "preemptions_reserve_8": [0, 0],
        "speedup_blockserve-budget_8": [1.1860279, 0.099380993],
    },
    "14_rq5_block_length_and_sorting": {
        "row_tokens_blockserve-fixed_L32": 780810,
        "padding_fifo": 0.16144428,
        "padding_longest_first": 0.14058469,
        "throughput_longest_first_over_fifo": [1.0139818, 0.027460551],
        "throughput_blockserve-fixed_L16_over_L32": [0.7370981, 0.029620758],
    },
    "15_paper_scale": {
        "rows": 62,
        "predicted_rows": 51,
        "median_error": 0.055669482,
        "within_10_percent": 0.66666667,
        "median_error_r": 0.04549759,
    },
    "16_online": {
        "token_budget": 13424,
        "capacity_requests_per_s": 2.7013716,
        "limit_s": 5.7687044,
        "p99_s_static_load_0.9": [23.670888, 36.296391],
        "p99_s_block-fifo_load_0.9": [8.6124550, 2.6749882],
        "in_time_blockserve-budget_load_0.9": [0.795, 0.95325],
        "load_held_block-fifo": 0.3,
    },
}
REAL_ONLY = {"17_quality_and_exactness"}
EXPERIMENTS = [name for name in available() if name[0] == "1"]


def of(workload: str, headline: Mapping[str, Any]) -> dict[str, Any]:
    """The headline numbers of one workload, or of one model: those whose key ends so, without the end."""
    return {key.removesuffix(workload): value for key, value in headline.items() if key.endswith(workload)}


def test_every_experiment_has_its_numbers_here():
    assert set(SIMULATED) | REAL_ONLY == set(EXPERIMENTS)


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_headline_numbers(name, quick_report):
    headline = quick_report(name, engine="simulated").results["headline"]
    for key, expected in SIMULATED[name].items():
        assert headline[key] == pytest.approx(expected, rel=1e-6), key


@pytest.mark.parametrize("name", SIMULATED)
def test_results_hold_parameters_and_manifest_and_the_page_says_simulated(name, quick_report):
    report = quick_report(name, engine="simulated")
    results = report.results
    assert results["simulated"] is True and results["timings"] == {}
    assert set(results["parameters"]) == set(parameters(available()[name]))
    assert results["parameters"]["quick"] is True and "python" in results["manifest"]["versions"]
    page = report.html.read_text()
    assert page.count("(simulated") >= 1 and "SIMULATED" in page


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_an_experiment_begins_with_question_method_and_what_would_change_our_mind(name):
    first = nbformat.read(available()[name], as_version=4).cells[0].source
    assert first.startswith("# ")
    assert all(f"**{word}**" in first for word in ("Question.", "Method.", "What would change our mind."))
    assert all(parameter.help for parameter in parameters(available()[name]).values())


def test_two_runs_give_the_same_results(quick_report, tmp_path):
    name = "13_rq4_admission_capacity"
    again = run_report(name, tmp_path, {"quick": True}, progress=False)
    assert json.dumps(again.results) == json.dumps(quick_report(name).results)


def test_a_real_run_measures_and_keeps_its_seconds_apart(quick_report):
    results = quick_report("14_rq5_block_length_and_sorting", engine="real").results
    assert results["simulated"] is False and results["manifest"]["device"] == "cpu"
    headline = results["headline"]
    for length, tokens in ((8, 9762), (16, 6988), (32, 6739)):  # float32: a close decision may flip
        assert headline[f"row_tokens_blockserve-fixed_L{length}"] == pytest.approx(tokens, rel=0.03)
        assert headline[f"accuracy_blockserve-fixed_L{length}"] >= 0.9
    assert not any("throughput" in key for key in headline)
    assert results["timings"]["throughput_longest_first_over_fifo"][0] > 0


def test_the_budget_is_kept_in_a_real_run(quick_report):
    headline = quick_report("13_rq4_admission_capacity", engine="real").results["headline"]
    assert headline["budget_used_most_4"] <= 1 and headline["preemptions_reserve_4"] == [0, 0]
    assert headline["rows_over_slots_4"][0] == pytest.approx(1.031, rel=0.1)


def test_the_ladder_of_a_real_run_keeps_answers_and_grades_every_rung(quick_report):
    results = quick_report("10_rq1_throughput_quality", engine="real").results
    headline = of("_tiny-llada_arithmetic", results["headline"])
    rungs = [name.removeprefix("row_tokens_") for name in headline if name.startswith("row_tokens_")]
    assert len(rungs) == 8 and min(headline[f"accuracy_{rung}"] for rung in rungs) >= 0.9
    assert headline["same_answers_static-eos"] == 1, "what follows the end token is no part of an answer"
    assert min(headline[f"same_answers_{rung}"] for rung in rungs[3:]) >= 0.95  # float32: a close decision may flip
    for rung, tokens in (("fast-dllm-static", 7061), ("static", 4347), ("block-fifo", 3525)):
        assert headline[f"row_tokens_{rung}"] == pytest.approx(tokens, rel=0.03)
    assert headline["work_saved_implementation"][0] == pytest.approx(1.617, rel=0.05)
    assert headline["work_saved_scheduling"][0] == pytest.approx(1.212, rel=0.05)
    assert not any("speedup" in key or "_s_" in key for key in headline)
    timings = of("_tiny-llada_arithmetic", results["timings"])
    assert timings["speedup_over_fast-dllm-static"] == timings["speedup_whole"] and timings["speedup_whole"][0] > 0
    assert timings["speedup_over_static"] == timings["speedup_scheduling"] and timings["speedup_over_static-eos"][0] > 0


def test_quality_and_exactness_of_a_real_run(quick_report):
    results = quick_report("17_quality_and_exactness").results
    headline = of("_tiny-llada", results["headline"])
    assert results["simulated"] is False and results["timings"] == {}
    assert headline["agreement_float64"] == 1 and headline["differ_float64"] == 0
    assert headline["agreement_float32"] >= 0.8 and 0 <= headline["agreement_bfloat16"] <= 1
    assert headline["accuracy_arithmetic_defaults"] >= 0.9
    fast, normal, careful = (
        headline[f"tokens_per_forward_arithmetic_{setting}"]
        for setting in ("threshold_0.5", "defaults", "threshold_0.99")
    )
    assert normal == pytest.approx(4.11, rel=0.05) and careful < normal < fast
    assert len(results["settings"]) == 6 and {row["model"] for row in results["settings"]} == {"tiny-llada"}


@pytest.mark.parametrize(("name", "engine"), [("15_paper_scale", "real"), ("17_quality_and_exactness", "simulated")])
def test_a_mode_that_means_nothing_is_refused(name, engine, tmp_path):
    with pytest.raises(ReportError, match=f"engine='{engine}' means nothing here"):
        run_report(name, tmp_path, {"engine": engine}, progress=False)
