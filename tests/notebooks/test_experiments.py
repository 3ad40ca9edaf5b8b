"""The experiment notebooks' quick runs: headline numbers, exactly where simulated; marks; modes that are refused."""

from __future__ import annotations

import json

import nbformat
import pytest

from blockserve.report import ReportError, available, parameters, run_report

SIMULATED = {
    "11_rq2_latency_by_length": {
        "valid_tokens_static": 12807,
        "service_short_s_static": 2.5597998,
        "service_short_s_block-fifo": 1.3176073,
        "service_long_s_block-fifo": 3.1761416,
    },
    "12_rq3_batch_scaling": {
        "work_saved_block-fifo_at_8": 0.069184646,
        "work_saved_blockserve-fixed_at_8": 0.16631461,
        "speedup_blockserve-fixed_at_8": [1.0996224, 0.098048117],
        "tokens_per_s_static_at_8": 278.26186,
    },
    "13_rq4_admission_capacity": {
        "rows_over_slots_8": 1.231383,
        "rows_most_8": 13,
        "preemptions_8": 6,
        "preemptions_reserve_8": 0,
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
        "token_budget": 9056,
        "capacity_requests_per_s": 2.4763283,
        "limit_s": 5.8039924,
        "p99_s_static_load_0.9": 18.820694,
        "p99_s_block-fifo_load_0.9": 7.7845729,
        "in_time_blockserve-budget_load_0.9": 0.92,
        "load_held_block-fifo": 0.3,
    },
}
EXPERIMENTS = [name for name in available() if name[0] == "1"]


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """``quick(name, **given)``: the quick run of a notebook, made once."""
    made = {}

    def run(name, **given):
        key = (name, *given.items())
        if key not in made:
            folder = tmp_path_factory.mktemp(name)
            made[key] = run_report(name, folder, {"quick": True} | given, progress=False)
        return made[key]

    return run


def test_every_experiment_has_its_numbers_here():
    assert set(SIMULATED) == set(EXPERIMENTS)


@pytest.mark.parametrize("name", SIMULATED)
def test_simulated_headline_numbers(name, quick):
    headline = quick(name).results["headline"]
    for key, expected in SIMULATED[name].items():
        assert headline[key] == pytest.approx(expected, rel=1e-6), key


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_results_hold_parameters_and_manifest_and_the_page_says_simulated(name, quick):
    report = quick(name)
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


def test_two_runs_give_the_same_results(quick, tmp_path):
    name = "13_rq4_admission_capacity"
    again = run_report(name, tmp_path, {"quick": True}, progress=False)
    assert json.dumps(again.results) == json.dumps(quick(name).results)


def test_a_real_run_measures_and_keeps_its_seconds_apart(quick):
    results = quick("14_rq5_block_length_and_sorting", engine="real").results
    assert results["simulated"] is False and results["manifest"]["device"] == "cpu"
    headline = results["headline"]
    for length, tokens in ((8, 8972), (16, 6903), (32, 7654)):  # float32: a close decision may flip
        assert headline[f"row_tokens_blockserve-fixed_L{length}"] == pytest.approx(tokens, rel=0.03)
        assert headline[f"accuracy_blockserve-fixed_L{length}"] >= 0.9
    assert not any("throughput" in key for key in headline)
    assert results["timings"]["throughput_longest_first_over_fifo"][0] > 0


def test_the_budget_is_kept_in_a_real_run(quick):
    headline = quick("13_rq4_admission_capacity", engine="real").results["headline"]
    assert headline["budget_used_most_4"] <= 1 and headline["preemptions_reserve_4"] == 0
    assert headline["rows_over_slots_4"] == pytest.approx(1.179, rel=0.1)


def test_a_mode_that_means_nothing_is_refused(tmp_path):
    with pytest.raises(ReportError, match="engine='real' means nothing here"):
        run_report("15_paper_scale", tmp_path, {"engine": "real"}, progress=False)
