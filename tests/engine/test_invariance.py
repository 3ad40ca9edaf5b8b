"""A request's tokens do not depend on its company: batch, row, schedule, preemption, execution details.

float64 on random workloads, as the design promises; the float32 cases on fixed workloads are in test_conformance
(golden vectors) and test_tiny_models (the trained models).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from blockserve import Engine, ExecConfig, Factor, Quota, Request, Threshold
from blockserve.checkpoints import load_model
from blockserve.execution import decode

GOLDEN = Path(__file__).parents[1] / "golden"
MODELS = {name: load_model(GOLDEN / name, dtype="float64") for name in ("llada_tiny", "dream_tiny")}

RULES = st.sampled_from([Threshold(0.3), Threshold(0.9), Quota(3), Quota(), Factor(0.7), Factor(2.0)])


@st.composite
def workloads(draw, model: str):
    """Up to six requests of random tokens (never the mask), limits that need not be whole blocks."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    legal = [i for i in range(128) if i != MODELS[model].mask_id]
    sizes = draw(st.lists(st.tuples(st.integers(1, 20), st.integers(1, 30)), min_size=2, max_size=6))
    return [
        Request(str(i), prompt_ids=tuple(rng.choice(legal, p).tolist()), max_new_tokens=g, seed=i)
        for i, (p, g) in enumerate(sizes)
    ]


@st.composite
def decode_options(draw):
    return {
        "block_length": draw(st.sampled_from([1, 4, 8])),
        "rule": draw(RULES),
        "cache": draw(st.sampled_from(["dual", "prefix", "none"])),
        "suffix": draw(st.sampled_from([0, 1, "full"])),
        "eos": draw(st.sampled_from(["settled", "block", "ignore"])),
        "temperature": draw(st.sampled_from([0.0, 0.0, 0.7])),
    }


@st.composite
def schedules(draw, requests, block_length):
    """Any policy and any execution, with a budget that holds the largest request."""
    largest = max(len(r.prompt_ids) - (-r.max_new_tokens // block_length) * block_length for r in requests)
    budget = {"token_budget": draw(st.integers(largest, 2 * largest))}
    return {
        "order": draw(st.sampled_from(["longest_first", "shortest_first", "fifo"])),
        "fill": draw(st.sampled_from(["sand", "sand_strict", "head_of_line"])),
        "quantum": draw(st.sampled_from(["block", "block", "block", "request"])),
        "head": draw(st.sampled_from(["block", "full"])),
        "compaction": draw(st.booleans()),
        **draw(st.sampled_from([{"slots": 3}, budget, budget])),
    }


def outputs(model, requests, options, cancel=None):
    """Outputs by request, and preemptions. ``cancel``: (cycle, id), a request cancelled at the boundary after it."""
    engine = Engine(MODELS[model], "blockserve-fixed", check=True, **options)
    engine.submit(requests)
    for record in engine.cycles():
        if cancel is not None and record.index == cancel[0]:
            engine.cancel(cancel[1])
    trace = engine.trace
    preempted = sum(len(c.preempted) for c in trace.cycle_records)
    return {c.id: (c.output_ids, c.reason, c.valid_tokens) for c in trace.completion_records}, preempted


@pytest.mark.parametrize("model", ["llada_tiny", "dream_tiny"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_tokens_do_not_depend_on_the_company(model, record_count, data):
    requests, config = data.draw(workloads(model)), data.draw(decode_options())
    alone = {}
    for request in requests:
        alone |= outputs(model, [request], config | {"slots": 1})[0]
    schedule = data.draw(schedules(requests, config["block_length"]))
    order = data.draw(st.permutations(requests))
    cancel = data.draw(st.none() | st.tuples(st.integers(0, 3), st.sampled_from([r.id for r in requests])))
    together, preempted = outputs(model, order, config | schedule, cancel)
    if cancel is not None and together[cancel[1]][1] == "cancelled":  # its neighbours must not notice
        ids, whole = together.pop(cancel[1])[0], alone.pop(cancel[1])[0]
        assert ids == whole[: len(ids)]
        record_count("cancelled neighbours in random float64 workloads")
    assert together == alone
    record_count("random float64 workloads")
    record_count("preemptions in random float64 workloads", preempted)


def test_temperature_changes_the_output_and_seeds_repeat_it():
    requests = [Request("a", prompt_ids=(5, 9, 20), max_new_tokens=24, seed=s) for s in (1, 1, 2)]
    options = {"block_length": 8, "temperature": 1.5, "slots": 1}
    first, again, other = (outputs("llada_tiny", [r], options)[0]["a"][0] for r in requests)
    greedy = outputs("llada_tiny", requests[:1], options | {"temperature": 0.0})[0]["a"][0]
    assert first == again
    assert len({first, other, greedy}) == 3


def test_a_requests_own_rule_and_temperature_hold_only_for_it():
    base = Request("a", prompt_ids=(5, 9, 20), max_new_tokens=16)
    own = Request("b", prompt_ids=(5, 9, 20), max_new_tokens=16, rule=Quota(), temperature=1.0, seed=3)
    options = {"block_length": 8, "slots": 2}
    together, _ = outputs("llada_tiny", [base, own], options)
    assert together["a"] == outputs("llada_tiny", [base], options)[0]["a"]
    assert together["b"] == outputs("llada_tiny", [own], options)[0]["b"]
    assert together["a"] != together["b"]


def test_two_engines_interleaved_share_no_state():
    requests = {name: [Request(str(i), prompt_ids=(7 + i, 3), max_new_tokens=24) for i in range(3)] for name in MODELS}
    engines = {name: Engine(MODELS[name], "blockserve-fixed", slots=2, block_length=8) for name in MODELS}
    solo = {name: outputs(name, requests[name], {"slots": 2, "block_length": 8})[0] for name in MODELS}
    for name, engine in engines.items():
        engine.submit(requests[name])
    loops = [engine.cycles() for engine in engines.values()]
    while loops:
        loops = [loop for loop in loops if next(loop, None) is not None]
    for name, engine in engines.items():
        ids = {c.id: (c.output_ids, c.reason, c.valid_tokens) for c in engine.trace.completion_records}
        assert ids == solo[name]


@pytest.mark.parametrize("length", [4, 8, 16, 32, 64])
def test_every_block_length_gives_alone_what_it_gives_in_a_batch(length):
    requests = [Request(str(i), prompt_ids=tuple(range(1, 4 + 9 * i)), max_new_tokens=64) for i in range(3)]
    options = {"block_length": length, "eos": "block"}
    together, _ = outputs("llada_tiny", requests, options | {"slots": 3})
    for r in requests:
        assert outputs("llada_tiny", [r], options | {"slots": 1})[0][r.id] == together[r.id]
        assert len(together[r.id][0]) > 0


# ---------------------------------------------------------------------------------- commit rules, by hand


def chosen(confidence, rule, step=0, masked=None, **options):
    confidence = torch.tensor([confidence], dtype=torch.float64)
    masked = torch.ones_like(confidence, dtype=torch.bool) if masked is None else torch.tensor([masked])
    return decode.commit(confidence, masked, [rule], step, **options)[0].nonzero()[:, 0].tolist()


def test_threshold_commits_what_reaches_it_and_always_the_best():
    assert chosen([0.5, 0.9, 0.95], Threshold(0.9)) == [1, 2]
    assert chosen([0.5, 0.2, 0.3], Threshold(0.9)) == [0]
    assert chosen([0.5, 0.9, 0.3], Threshold(0.9), masked=[True, False, True]) == [0]


def test_equal_confidences_go_to_the_lowest_position():
    assert chosen([0.5, 0.5, 0.5, 0.5], Threshold(0.9)) == [0]
    assert chosen([1.0] * 6, Quota(3)) == [0, 1]


def test_quota_spreads_evenly_with_the_remainder_first():
    """16 masks in 5 steps: 4, 3, 3, 3, 3 (golden README); more steps than masks act as one a step."""
    assert [decode.quota_count(Quota(5), 16, s, False) for s in range(5)] == [4, 3, 3, 3, 3]
    assert [decode.quota_count(Quota(40), 4, s, False) for s in range(4)] == [1, 1, 1, 1]
    # Dream: one at step 0, the other 15 over the other 4 steps
    assert [decode.quota_count(Quota(5), 16, s, True) for s in range(1, 5)] == [4, 4, 4, 3]
    assert decode.quota_count(Quota(1), 16, 1, True) == 15


def test_factor_commits_the_largest_n_that_keeps_its_bound():
    """(n + 1)(1 - c_n) ≤ f. c = .99, .9, .6: 2·.01, 3·.1, 4·.4 = .02, .3, 1.6."""
    confidence = [0.6, 0.99, 0.9]
    assert chosen(confidence, Factor(0.01)) == [1]
    assert chosen(confidence, Factor(0.02 + 1e-9)) == [1]
    assert chosen(confidence, Factor(0.31)) == [1, 2]
    assert chosen(confidence, Factor(1.7)) == [0, 1, 2]


def test_dreams_first_step_commits_exactly_the_first_position():
    for rule in (Threshold(0.5), Quota(2), Factor(3.0)):
        assert chosen([0.1, 0.9, 0.9], rule, first_only=True) == [0]


def test_proposals_ban_the_mask_keep_it_in_the_softmax_and_break_ties_low():
    logits = torch.tensor([[[1.0, 3.0, 3.0, 5.0]]])
    tokens, confidence = decode.propose(logits, torch.tensor([3]))
    assert tokens.item() == 1
    expected = np.exp(3) / np.exp([1, 3, 3, 5]).sum()
    assert confidence.dtype == torch.float64
    assert confidence.item() == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(
    ("tokens", "masked", "expected"),
    [
        ([7, 9, 7], [False, False, False], 1),  # settled
        ([7, 9, 9], [True, False, False], 3),  # a mask before it
        ([9, 7, 7], [False, True, True], 0),  # first token, masks behind do not matter
        ([7, 9, 7], [False, True, False], 3),  # the end token itself is not committed
        ([7, 7, 7], [False, False, False], 3),  # none
        ([8, 7, 9], [False, False, False], 0),  # another end token
    ],
)
def test_an_end_token_is_settled_when_no_mask_stands_before_it(tokens, masked, expected):
    assert decode.settled_end(torch.tensor([tokens]), torch.tensor([masked]), torch.tensor([9, 8])).item() == expected


def test_exec_config_changes_the_work_and_not_the_tokens():
    requests = [Request(str(i), prompt_ids=tuple(range(1, 5 + i)), max_new_tokens=16) for i in range(4)]
    runs = {
        compaction: Engine(MODELS["llada_tiny"], "static", block_length=8, slots=4, compaction=compaction).run(requests)
        for compaction in (True, False)
    }
    assert [c.output_ids for c in runs[True].completions] == [c.output_ids for c in runs[False].completions]
    work = {k: r.trace.cycles.row_tokens.sum() for k, r in runs.items()}
    assert work[True] < work[False]
    assert ExecConfig() == ExecConfig("block", True)
