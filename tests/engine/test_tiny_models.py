"""The models in the package: accuracy on unseen problems, and the same tokens under every schedule, in float32."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockserve import PRESETS, Engine, Workload, load_model, waste
from blockserve.checkpoints import model_table
from blockserve.core import DecodeConfig
from blockserve.studies.quality import evaluate
from blockserve.workload.tasks import TASKS

MODELS = ("tiny-llada", "tiny-dream")
SHARED_DECODE = [name for name, preset in PRESETS.items() if preset.decode == DecodeConfig()]
CARDS = {entry["name"]: entry["accuracy"] for entry in model_table()}
NOISE = 0.15  # of 80 problems against 200 others

# 64 requests of all five families, long and short answers side by side; without tags, so that nothing is graded
WORKLOAD = Workload("mixed", tuple(replace(r, tags={}) for r in Workload.tasks("all", n=13, seed=0).requests[:64]))


@pytest.fixture(scope="module", params=MODELS)
def model(request):
    return load_model(request.param, dtype="float32", device="cpu")


def run(model, workload, preset="blockserve-fixed", **options):
    return Engine(model, preset, check=True, **options).run(workload)


def tokens(done) -> dict:
    return {c.request_id: (c.output_ids, c.reason) for c in done.completions}


@pytest.fixture(scope="module")
def alone(model):
    """Each request in an engine run of its own."""
    return {key: value for request in WORKLOAD for key, value in tokens(run(model, [request], slots=1)).items()}


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
def test_64_requests_give_the_same_tokens(model, alone, way, shuffled, record_count):
    done = run(model, WORKLOAD.shuffled(5) if shuffled else WORKLOAD, **WAYS[way])
    assert tokens(done) == alone
    record_count(f"requests of {model.name} with the same tokens", len(alone))
    preempted = int(done.trace.cycles.preempted.sum())
    record_count(f"preemptions with {model.name}", preempted)
    if "preempts" in way:
        assert preempted > 0


@pytest.mark.parametrize("task", TASKS)
def test_unseen_problems_are_answered_as_the_card_says(model, task, record_count):
    """Threshold 0.9, dual cache, no suffix, L 16, the family's own limit; other problems than the card's."""
    (found,) = evaluate(model, task, n=80, seed=8)
    assert abs(found.accuracy - CARDS[model.name][task]) <= NOISE
    assert found.accuracy >= (0.9 if task == "arithmetic" else 0.4)
    assert found.blocks_max <= found.blocks_limit
    assert found.ended_by_eos >= 0.95
    record_count(f"right answers of {model.name} to 80 unseen problems of {task}", round(80 * found.accuracy))


def test_accuracy_is_the_same_under_every_schedule(model):
    workload = Workload.tasks("arithmetic", n=40, seed=7)
    correct = {name: [c.correct for c in run(model, workload, name).completions] for name in SHARED_DECODE}
    assert len(SHARED_DECODE) == 6
    for name, found in correct.items():
        assert found == correct["static"], name
    assert sum(correct["static"]) >= 0.95 * len(workload)


def test_requests_of_one_batch_are_uneven(model):
    """What block scheduling is for: answers of one block to many, and blocks of two steps to many."""
    done = run(model, Workload.tasks("all", n=20, seed=7))
    blocks = [c.blocks for c in done.completions]
    assert set(blocks) >= {1, 2, 3, 4, 5} and max(blocks) <= 8
    steps = done.trace.rows["steps"]
    assert steps.std() / steps.mean() > 0.25


def test_batched_requests_are_not_slower_in_work_than_solo_runs(model):
    """Every row does the same passes over its own cells in a batch as alone: batching adds padding, nothing else."""
    batched = waste(run(model, WORKLOAD, slots=8).trace)
    solo = waste(run(model, WORKLOAD, slots=1).trace)
    assert {k: v for k, v in batched.items() if k != "padding"} == {k: v for k, v in solo.items() if k != "padding"}
    assert solo["padding"] == 0
