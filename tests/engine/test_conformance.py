"""Our tokens, steps and forwards equal those of the peers' real code (tests/golden), through the public Engine.

No decode loop here: every number comes out of `Engine.run`. Each case runs alone and in a batch with all others
that share its model, cache mode, suffix, block length and kind of commit rule.
"""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
import torch

from blockserve import Engine, Request
from blockserve.checkpoints import load_model
from blockserve.core import Quota, Threshold

GOLDEN = Path(__file__).parents[1] / "golden"
CACHE = {"no_cache": "none", "prefix_cache": "prefix", "dual_cache": "dual"}
SUFFIX = {"full": "full", "none": 0}
CASES = json.loads((GOLDEN / "decode.json").read_text())["cases"]
WORKLOADS = json.loads((GOLDEN / "batched.json").read_text())["workloads"]
FORWARD = json.loads((GOLDEN / "forward.json").read_text())["models"]


@pytest.fixture(scope="module")
def models():
    return {name: load_model(GOLDEN / name, dtype="float32") for name in ("llada_tiny", "dream_tiny")}


def request_of(case) -> Request:
    rule = Threshold(case["threshold"]) if case["rule"] == "threshold" else Quota(case["steps_per_block"])
    return Request(case["id"], prompt_ids=tuple(case["prompt"]), max_new_tokens=case["gen_length"], rule=rule)


def engine_for(case, models, **options) -> Engine:
    return Engine(
        models[case["model"]],
        block_length=case["block_length"],
        cache=CACHE[case["algorithm"]],
        suffix=SUFFIX[case["suffix"]],
        eos="ignore",
        trace_level="token",
        check=True,
        **options,
    )


def assert_case(case, run) -> None:
    """Output ids, positions of every step, and forwards that committed something."""
    done = next(c for c in run.completions if c.request_id == case["id"])
    assert list(done.output_ids) == case["output_ids"][len(case["prompt"]) :], case["id"]
    ours = [list(p) for p in run.trace.steps.query("id == @case['id']").positions]
    peer = [step["positions"] for block in case["blocks"] for step in block["steps"] if step["positions"]]
    assert ours == peer, case["id"]
    assert len(ours) == case["nfe_needed"], case["id"]
    if case["model"] == "llada_tiny":  # Dream's peer takes its confidences in float32
        confidence = [c for step in run.trace.steps.query("id == @case['id']").confidence for c in step]
        theirs = [c for block in case["blocks"] for step in block["steps"] for c in step["confidence"]]
        np.testing.assert_allclose(confidence, theirs, atol=1e-4, err_msg=case["id"])


def groups() -> dict[tuple, list]:
    found = defaultdict(list)
    for case in CASES:
        found[(case["model"], case["algorithm"], case["suffix"], case["block_length"], case["rule"])].append(case)
    return found


def test_every_decode_case_alone(models, record_count):
    for case in CASES:
        run = engine_for(case, models, preset="blockserve-fixed", slots=1).run([request_of(case)])
        assert_case(case, run)
        record_count("decode cases alone")


@pytest.mark.parametrize("bound", ["slots", "budget"])
def test_every_decode_case_in_a_batch_with_others_of_its_kind(models, record_count, bound):
    for cases in groups().values():
        options = {"slots": 3} if bound == "slots" else {"token_budget": widest(cases)}
        run = engine_for(cases[0], models, preset="blockserve-fixed", **options).run([request_of(c) for c in cases])
        for case in cases:
            assert_case(case, run)
            record_count(f"decode cases batched ({bound})")


def widest(requests) -> int:
    """The tightest budget that rejects none of them: rows are preempted as they grow."""
    return max(len(r["prompt"]) + r["gen_length"] for r in requests)


def tight_budgets(requests) -> list[dict]:
    """Budgets near the widest row, in orders that let narrow rows in early, so that they outgrow it."""
    kinds = ((1.0, "fifo"), (1.2, "shortest_first"), (1.4, "shortest_first"))
    return [{"token_budget": int(widest(requests) * factor), "order": order} for factor, order in kinds]


EXPECTED_OUTPUT = {
    "ignore": lambda r: r["output_ids_full"][len(r["prompt"]) :],
    "block": lambda r: r["output_ids_stop"][len(r["prompt"]) :],
    "settled": lambda r: r["generated_until_eos"],
}


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda w: w["name"])
@pytest.mark.parametrize("eos", ["ignore", "block", "settled"])
def test_mixed_batches_equal_solo_runs_of_the_peer(models, record_count, workload, eos):
    requests, preemptions = workload["requests"], 0
    for order in (requests, requests[::-1], random.Random(7).sample(requests, len(requests))):
        for options in ({"slots": len(requests)}, {"slots": 3}, *tight_budgets(requests)):
            run = Engine(
                models[workload["model"]],
                preset="blockserve-fixed",
                block_length=requests[0]["block_length"],
                threshold=requests[0]["threshold"],
                eos=eos,
                check=True,
                **options,
            ).run([golden_request(r) for r in order])
            for r in requests:
                assert_golden(r, run, eos)
            preemptions += run.trace.cycles.preempted.sum()
    assert preemptions > 0, "the tight budget must preempt, or it tests nothing"
    record_count("preemptions in mixed batches", preemptions)
    record_count(f"batched requests ({eos})", len(requests))


def golden_request(r) -> Request:
    return Request(
        r["id"], prompt_ids=tuple(r["prompt"]), max_new_tokens=r["gen_length"], rule=Threshold(r["threshold"])
    )


def assert_golden(r, run, eos) -> None:
    done = next(c for c in run.completions if c.request_id == r["id"])
    rows = run.trace.rows.query("id == @r['id']")
    valid = list(done.output_ids[: done.valid_tokens])
    assert valid == r["generated_until_eos"]
    if eos != "settled":
        assert list(done.output_ids) == EXPECTED_OUTPUT[eos](r)
    if eos == "block":
        assert rows.steps.sum() == r["nfe_needed_stop"]
        assert done.blocks == r["blocks_run"]
    if eos == "ignore":
        assert list(rows.steps) == r["nfe_needed_per_block"]
    ended_by_eos = r["first_eos_index"] is not None and eos != "ignore"
    assert done.reason == ("eos" if ended_by_eos else "length")


@pytest.mark.parametrize("name", ["llada", "dream"])
def test_forward_logits_equal_the_peer(models, record_count, name):
    """Full passes, dual-cache and prefix-cache forwards, with the cache and layout the executor uses."""
    from blockserve.execution.cache import KVCache, Write

    network, arrays = models[f"{name}_tiny"].network, np.load(GOLDEN / f"forward_{name}.npz")
    for case in FORWARD[f"{name}_tiny"]["full"]:
        ids = torch.from_numpy(arrays[case["ids"]])[None]
        logits = network.head(network(ids, torch.arange(ids.shape[1])[None]))
        close(logits, arrays[case["logits"]])
        record_count("forward scenarios")
    for case in FORWARD[f"{name}_tiny"]["block"]:
        ids = torch.from_numpy(arrays[case["ids"]])[None]
        positions = torch.arange(ids.shape[1])[None]
        start, end = case["start"], case["end"]
        for columns, inputs, expected in (
            (positions[:, start:end], [case["new1"], case["new2"]], [case["dual1_logits"], case["dual2_logits"]]),
            (positions[:, start:], [case["new1"]], [case["prefix1_logits"]]),
        ):
            cache = KVCache()
            close(network.head(network(ids, positions, None, cache)), arrays[case["full_logits"]])
            for new, logits in zip(inputs, expected, strict=True):
                piece = torch.cat((torch.from_numpy(arrays[new])[None], ids[:, end : columns[0, -1] + 1]), 1)
                out = network(piece, columns, None, cache.writing(Write(columns)))
                close(network.head(out), arrays[logits])
        record_count("forward scenarios")


def close(ours: torch.Tensor, theirs: np.ndarray) -> None:
    torch.testing.assert_close(ours[0], torch.from_numpy(theirs), atol=1e-3, rtol=0)
