"""The model in the package: its accuracy on unseen problems, and the same tokens under every schedule, in float32."""

from __future__ import annotations

import pytest

from blockserve import PRESETS, Engine, Workload, load_model
from blockserve.core import DecodeConfig

MODEL = load_model("tiny-llada", dtype="float32", device="cpu")
WORKLOAD = Workload.tasks("arithmetic", n=64, seed=0)
SHARED_DECODE = [name for name, preset in PRESETS.items() if preset.decode == DecodeConfig()]


def run(workload, preset="blockserve-fixed", **options):
    return Engine(MODEL, preset, check=True, **options).run(workload)


def tokens(done) -> dict:
    return {c.request_id: (c.output_ids, c.reason) for c in done.completions}


@pytest.fixture(scope="module")
def alone():
    """Each request in an engine run of its own."""
    return {key: value for request in WORKLOAD for key, value in tokens(run([request], slots=1)).items()}


WAYS = {
    "one batch": {"slots": 64},
    "static": {"preset": "static"},
    "blockserve-fixed": {"preset": "blockserve-fixed"},
    "blockserve-budget": {"preset": "blockserve-budget"},
    "a budget that preempts": {"preset": "blockserve-budget", "token_budget": 400},
    "shortest first, a budget that preempts": {
        "preset": "blockserve-budget",
        "token_budget": 400,
        "order": "shortest_first",
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "shuffled"])
def test_64_requests_give_the_same_tokens(alone, way, shuffled, record_count):
    done = run(WORKLOAD.shuffled(5) if shuffled else WORKLOAD, **WAYS[way])
    assert tokens(done) == alone
    record_count("requests of tiny-llada with the same tokens", len(alone))
    preempted = int(done.trace.cycles.preempted.sum())
    record_count("preemptions with tiny-llada", preempted)
    if "preempts" in way:
        assert preempted > 0


def test_accuracy_on_200_unseen_problems_is_the_same_under_every_schedule(record_count):
    """Threshold 0.9, L 16, limit 80: at least 95% right final answers."""
    workload = Workload.tasks("arithmetic", n=200, seed=7)
    correct = {name: [c.correct for c in run(workload, name).completions] for name in SHARED_DECODE}
    assert len(SHARED_DECODE) == 6
    for name, found in correct.items():
        assert found == correct["static"], name
    right = sum(correct["static"])
    record_count("right answers of 200 unseen arithmetic problems", right)
    assert right >= 190


def test_answers_take_one_to_five_blocks_and_end_by_themselves():
    done = run(Workload.tasks("arithmetic", n=200, seed=7))
    blocks = [c.blocks for c in done.completions]
    assert set(blocks) >= {1, 2, 3, 4}
    assert max(blocks) <= 5
    assert sum(c.reason == "eos" for c in done.completions) >= 190


def test_batched_requests_are_not_slower_in_work_than_solo_runs(alone):
    """Every row does the same passes over its own cells in a batch as alone: batching adds padding, nothing else."""
    from blockserve import waste

    batched = waste(run(WORKLOAD, slots=8).trace)
    solo = waste(run(WORKLOAD, slots=1).trace)
    assert {k: v for k, v in batched.items() if k != "padding"} == {k: v for k, v in solo.items() if k != "padding"}
    assert solo["padding"] == 0
