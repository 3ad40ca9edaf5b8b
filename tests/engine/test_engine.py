"""The engine as its user meets it: runs, loops, interrupts, files, mistakes; on the golden LLaDA model."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch

from blockserve import PRESETS, Engine, Request, Trace
from blockserve.checkpoints import load_model
from blockserve.core import (
    BlockServeError,
    CheckpointError,
    ConfigError,
    InvalidRequestError,
    OutOfMemoryError,
    TraceError,
    UnknownNameError,
)
from blockserve.execution.executor import TorchExecutor
from blockserve.tracing.metrics import waste

GOLDEN = Path(__file__).parents[1] / "golden"
MODEL = load_model(GOLDEN / "llada_tiny")
REQUESTS = [Request(str(i), prompt_ids=tuple(range(1, 4 + 5 * i)), max_new_tokens=8 * (1 + i % 4)) for i in range(7)]


def engine(preset="blockserve-fixed", **options) -> Engine:
    return Engine(MODEL, preset, **({"block_length": 8, "check": True} | options))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("cache", ["dual", "prefix", "none"])
def test_every_row_token_of_every_preset_is_accounted_for(preset, cache):
    """The parts of `waste` sum to rows × width over all passes, and work is counted alike in rows and cycles."""
    bound = {"token_budget": 160} if preset == "blockserve-budget" else {"slots": 3}
    run = engine(preset, cache=cache, **bound).run(REQUESTS)
    cycles, rows = run.trace.cycles, run.trace.rows
    parts = waste(run.trace)
    assert sum(parts.values()) == cycles.row_tokens.sum()
    assert all(value >= 0 for value in parts.values())
    assert rows.passes.sum() == cycles.row_passes.sum()
    assert parts["valid"] == sum(c.valid_tokens for c in run.completions)
    assert (cycles.cost == cycles.batch * cycles.box_width).all()
    assert (cycles.padding == cycles.cost - rows.groupby("cycle").width.sum()).all()
    assert len(run.completions) == len(REQUESTS)


def test_the_ladder_shares_tokens_below_static_no_suffix():
    rungs = ["static-no-suffix", "static-block-head", "static", "block-fifo", "blockserve-fixed"]
    runs = {name: engine(name, slots=3).run(REQUESTS) for name in rungs}
    reference = [c.output_ids for c in runs["static"].completions]
    assert all([c.output_ids for c in run.completions] == reference for run in runs.values())
    work = [runs[name].trace.cycles.row_tokens.sum() for name in rungs]
    assert work[2] < work[1] == work[0], "compaction saves row-tokens; the head saves none"


def test_cycles_can_be_watched_and_left():
    e = engine(slots=2)
    e.submit(REQUESTS)
    for record in e.cycles():
        if record.index == 2:
            break
    assert e.trace.end.status == "interrupted"
    reasons = {c.reason for c in e.trace.completion_records}
    assert "cancelled" in reasons
    assert len(e.trace.completion_records) == len(REQUESTS), "each ends exactly once"
    with pytest.raises(BlockServeError, match="nothing to run: call submit"):
        e.cycles()


def test_an_interrupt_keeps_what_is_done(tmp_path, monkeypatch):
    real, calls = TorchExecutor.execute, []

    def interrupted(self, plan):
        calls.append(plan)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(self, plan)

    monkeypatch.setattr(TorchExecutor, "execute", interrupted)
    with pytest.warns(UserWarning, match="interrupted"):
        run = engine(slots=2).run(REQUESTS, trace=tmp_path / "t.jsonl")
    assert run.trace.end.status == "interrupted"
    assert {c.reason for c in run.completions} > {"cancelled"}
    partial = [c for c in run.completions if c.reason == "cancelled" and c.output_ids]
    assert partial, "a row that was running keeps the blocks it had finished"
    assert Trace.load(tmp_path / "t.jsonl") == run.trace


def test_a_failure_inside_leaves_a_readable_trace(tmp_path, monkeypatch):
    def broken(self, plan):
        raise RuntimeError("boom")

    monkeypatch.setattr(TorchExecutor, "execute", broken)
    with pytest.raises(RuntimeError, match="boom"):
        engine().run(REQUESTS, trace=tmp_path / "t.jsonl")
    assert Trace.load(tmp_path / "t.jsonl").end.status == "failed"


def test_out_of_memory_halves_the_batch_and_changes_no_token(monkeypatch):
    expected = [c.output_ids for c in engine(slots=4).run(REQUESTS).completions]
    real = TorchExecutor.execute

    def small_device(self, plan):
        if len(plan.rows) > 2:
            raise OutOfMemoryError("no room for three rows")
        return real(self, plan)

    monkeypatch.setattr(TorchExecutor, "execute", small_device)
    with pytest.warns(UserWarning, match=r"out of memory with 4 rows"):
        run = engine(slots=4).run(REQUESTS)
    assert [c.output_ids for c in run.completions] == expected
    assert run.trace.cycles.batch.max() == 2
    assert len(run.trace.warning_records) == 1
    admitted = [name for c in run.trace.cycle_records for name, _ in c.admitted]
    assert sorted(admitted) == sorted(r.id for r in REQUESTS), "each admission is recorded once"
    assert run.trace.cycles.preempted.sum() == 0, "who never ran was not preempted"


def test_a_row_that_cannot_run_alone_ends_with_error_and_the_rest_go_on(monkeypatch):
    real = TorchExecutor.execute

    def refuses_request_3(self, plan):
        if any(row.request_id == "3" for row in plan.rows):
            raise OutOfMemoryError("too wide")
        return real(self, plan)

    monkeypatch.setattr(TorchExecutor, "execute", refuses_request_3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        run = engine(slots=4).run(REQUESTS)
    assert {c.request_id: c.reason for c in run.completions if c.reason == "error"} == {"3": "error"}
    assert sum(c.reason in ("eos", "length") for c in run.completions) == len(REQUESTS) - 1


def test_trace_levels(tmp_path):
    for level, has_cycles, has_detail in (("summary", False, False), ("cycle", True, False), ("token", True, True)):
        run = engine(trace_level=level).run(REQUESTS, trace=tmp_path / f"{level}.jsonl")
        assert Trace.load(tmp_path / f"{level}.jsonl") == run.trace
        assert bool(run.trace.cycle_records) == has_cycles
        assert ("positions" in run.trace.steps) == has_detail
        assert len(run.trace.completion_records) == len(REQUESTS)


def test_the_manifest_says_what_was_run():
    record = engine(slots=3, threshold=0.5).run(REQUESTS).trace.run
    assert record.preset == "blockserve-fixed"
    assert record.overrides == {"block_length": 8, "slots": 3, "threshold": 0.5}
    assert record.decode["rule"] == {"kind": "threshold", "tau": 0.5}
    assert record.policy["bound"] == {"slots": 3}
    assert (record.device, record.dtype, record.clock) == ("cpu", "float32", "wall")
    assert {"python", "torch", "blockserve"} <= set(record.versions)
    assert record.workload["requests"] == len(REQUESTS)


def test_arrivals_are_respected():
    late = [Request(str(i), prompt_ids=(1, 2, 3), max_new_tokens=8, arrival=0.05 * i) for i in range(3)]
    run = engine(slots=1).run(late)
    for c in run.completions:
        assert c.admitted >= c.arrival
    assert all(c.reason in ("eos", "length") for c in run.completions)


# ------------------------------------------------------------------------------------------------ mistakes


def test_every_offender_is_named_and_nothing_ran():
    bad = [
        REQUESTS[0],
        Request("empty", prompt_ids=()),
        Request("masked", prompt_ids=(1, MODEL.mask_id)),
        Request("long", prompt_ids=(1,) * 500, max_new_tokens=80),
        Request("beyond", prompt_ids=(1, 128)),
    ]
    e = engine()
    with pytest.raises(InvalidRequestError) as caught:
        e.run(bad)
    message = str(caught.value)
    assert message.startswith("4 requests cannot be served")
    for part in (
        "'empty' has an empty prompt",
        "'masked' holds the mask token (127) at position 1",
        "more than the model's context of 512; the largest limit that fits is 8",
        "'beyond' holds a token id outside 0 … 127",
    ):
        assert part in message
    run = e.run(bad, skip_invalid=True)
    assert {c.request_id: c.reason for c in run.completions if c.reason == "rejected"}.keys() == {
        "empty",
        "masked",
        "long",
        "beyond",
    }
    assert run.completions[0].reason in ("eos", "length")


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: Engine("tiny-lada"), UnknownNameError, "unknown model 'tiny-lada'. Did you mean 'tiny-llada'"),
        (lambda: engine("statics"), UnknownNameError, "Did you mean 'static'"),
        (lambda: engine(bugdet=3), UnknownNameError, "unknown option 'bugdet'"),
        (lambda: engine(trace_level="all"), UnknownNameError, "unknown trace level 'all'"),
        (lambda: engine(max_new_tokens=0), ConfigError, "max_new_tokens must be a whole number of at least 1"),
        (lambda: load_model(GOLDEN / "llada_tiny", dtype="int8"), UnknownNameError, "unknown dtype 'int8'"),
        (lambda: load_model(GOLDEN / "llada_tiny", device="warp"), CheckpointError, "device 'warp' cannot be used"),
        (lambda: engine(token_budget=40).run(REQUESTS[-1:]), InvalidRequestError, "the token budget of 40"),
        (lambda: engine().run([Request("t", prompt="text")]), InvalidRequestError, "has no tokenizer"),
        (lambda: engine().trace, BlockServeError, "no trace yet"),
        (lambda: engine().run([REQUESTS[0], REQUESTS[0]]), InvalidRequestError, "two requests with id '0'"),
    ],
)
def test_mistakes_get_one_clear_message(make, error, match):
    with pytest.raises(error, match=match):
        make()


def test_an_existing_trace_file_is_refused_before_anything_runs(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text("precious")
    with pytest.raises(TraceError, match="exists"):
        engine().run(REQUESTS, trace=path)
    assert path.read_text() == "precious"


def test_no_tensor_of_rows_by_width_by_vocabulary_is_made(monkeypatch):
    """Logits are part of the memory account: only ``head="full"`` may forward the head over whole rows."""
    sizes = []
    real = type(MODEL.network).head

    def spy(self, hidden):
        sizes.append(hidden.shape[1])
        return real(self, hidden)

    monkeypatch.setattr(type(MODEL.network), "head", spy)
    engine(head="block").run(REQUESTS)
    assert set(sizes) == {8}
    sizes.clear()
    engine(head="full").run(REQUESTS)
    assert max(sizes) > 8


# -------------------------------------------------------------------------- checkpoints: faults in the folder


@pytest.fixture
def folder(tmp_path):
    """A writable copy of the golden LLaDA checkpoint."""
    import shutil

    copy = tmp_path / "model"
    shutil.copytree(GOLDEN / "llada_tiny", copy)
    return copy


def rewrite(folder, change):
    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")


def test_a_sharded_folder_loads_like_a_single_file(folder):
    import json

    from safetensors.torch import load_file, save_file

    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    keys = sorted(tensors)
    shards = {"a.safetensors": keys[::2], "b.safetensors": keys[1::2]}
    for name, part in shards.items():
        save_file({k: tensors[k] for k in part}, folder / name)
    index = {"weight_map": {k: name for name, part in shards.items() for k in part}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    sharded, single = load_model(folder).network, MODEL.network
    for a, b in zip(sharded.parameters(), single.parameters(), strict=True):
        assert torch.equal(a, b)
    (folder / "b.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"the shard 'b.safetensors' .* is missing"):
        load_model(folder)


def test_faults_in_a_folder_name_the_file_and_the_key(folder):
    import json

    key = "model.transformer.blocks.1.q_proj.weight"
    original = (folder / "model.safetensors").read_bytes()

    def refuses(match):
        with pytest.raises(CheckpointError, match=match):
            load_model(folder)
        (folder / "model.safetensors").write_bytes(original)

    rewrite(folder, lambda t: t.pop(key))
    refuses(f"the key '{key}' is missing")
    rewrite(folder, lambda t: t.update({key + "_x": t.pop(key)}))
    refuses(rf"model.safetensors: the key '{key}_x' is not expected")
    rewrite(folder, lambda t: t.update({key: torch.zeros(3, 5)}))
    refuses(rf"'{key}' has shape \(3, 5\), the config asks for \(64, 64\)")
    (folder / "model.safetensors").write_bytes(original[:-100])
    refuses("model.safetensors: not a whole safetensors file")

    config = json.loads((folder / "config.json").read_text())
    for change, match in (
        (
            {"model_type": "gpt2"},
            "model_type 'gpt2' is not supported; known: Dream, a2d-llama, a2d-qwen2, a2d-qwen3, bert, dream, llada",
        ),
        ({"mask_token_id": None}, "config.json: the field 'mask_token_id' is missing"),
        ({"d_model": None}, "config.json: the field 'd_model' is missing"),
    ):
        (folder / "config.json").write_text(json.dumps(config | change))
        refuses(match)
    (folder / "config.json").write_text("{")
    refuses("config.json: not JSON")
    (folder / "config.json").unlink()
    refuses("config.json is missing")


# -------------------------------------------------------------------------------------- cancelling and threads


@pytest.mark.parametrize("preset", ["blockserve-fixed", "static"])
def test_cancelling_frees_the_row_keeps_the_partial_output_and_leaves_neighbours_alone(preset):
    whole = {c.request_id: c for c in engine(preset, slots=2, eos="ignore").run(REQUESTS).completions}
    e = engine(preset, slots=2, eos="ignore")
    e.submit(REQUESTS[::-1])
    running, cancelled = [], None
    for record in e.cycles():
        running.append({r.id for r in record.rows})
        if record.index == 1:
            cancelled = next(r.id for r in record.rows if r.block == 1 and r.ended is None)
            assert e.cancel(cancelled)
            assert e.cancel("0"), "still queued"
    done = {c.id: c for c in e.trace.completion_records}
    assert {done[cancelled].reason, done["0"].reason} == {"cancelled"}
    assert done["0"].output_ids == ()
    assert done[cancelled].output_ids == whole[cancelled].output_ids[:16], "the two blocks it had finished"
    assert all(cancelled not in rows for rows in running[2:])
    for request in REQUESTS:
        if request.id not in (cancelled, "0"):
            assert done[request.id].output_ids == whole[request.id].output_ids
    assert "had left after cycle 1 (cancelled)" in e.trace.explain(2, cancelled)


def test_cancelling_what_is_gone_or_unknown_is_answered_clearly():
    e = engine(slots=2)
    with pytest.raises(BlockServeError, match="nothing is running"):
        e.cancel("0")
    e.run(REQUESTS)
    assert not e.cancel("0"), "it has left"
    e.submit(REQUESTS)
    with pytest.raises(InvalidRequestError, match="'nobody' was never submitted"):
        e.cancel("nobody")


def test_a_run_in_a_thread_gives_the_same_and_can_be_stopped(tmp_path):
    expected = [c.output_ids for c in engine(slots=2).run(REQUESTS).completions]
    seen = []
    handle = engine(slots=2).start(REQUESTS)
    handle.on_cycle(seen.append)
    run = handle.wait(timeout=60)
    assert [c.output_ids for c in run.completions] == expected
    assert run.trace.complete and not handle.running
    assert set(r.index for r in seen) <= set(r.index for r in run.trace.cycle_records)

    late = [*REQUESTS[:1], Request("late", prompt_ids=(1,), arrival=3600.0)]
    handle = engine(slots=2).start(late, trace=tmp_path / "t.jsonl")
    with pytest.raises(TimeoutError):
        handle.wait(timeout=0.3)
    stopped = handle.stop()
    assert {c.request_id: c.reason for c in stopped.completions}["late"] == "cancelled"
    assert stopped.trace.end.status == "interrupted"
    assert Trace.load(tmp_path / "t.jsonl") == stopped.trace


def test_a_failure_in_the_thread_reaches_who_waits(monkeypatch):
    def broken(self, plan):
        raise RuntimeError("boom")

    monkeypatch.setattr(TorchExecutor, "execute", broken)
    with pytest.raises(RuntimeError, match="boom"):
        engine().start(REQUESTS).wait(timeout=60)


# ------------------------------------------------------------------------------------------------ stop strings


class Letters:
    """Token i is the letter pair "<i>;": one token, several characters, so that a match can begin inside a token."""

    def encode(self, text):
        return [int(part) for part in text.split(";") if part]

    def decode(self, ids):
        return "".join(f"{i};" for i in ids)


def test_stop_strings_end_their_own_request_and_cut_before_the_match():
    from dataclasses import replace

    model = replace(MODEL, tokenizer=Letters())
    prompt, limit = tuple(range(1, 14)), 32

    def run(*requests, eos="settled"):
        options = {"block_length": 8, "slots": 3, "eos": eos, "check": True}
        return {c.request_id: c for c in Engine(model, "blockserve-fixed", **options).run(requests).completions}

    free = run(Request("free", prompt_ids=prompt, max_new_tokens=limit))["free"]
    ids = free.output_ids
    across = f"{ids[7]};{ids[8]};"  # from the first block into the second
    inside = f";{ids[10]};"  # begins inside token 9
    for stop, tokens, blocks in ((across, 7, 2), (inside, 9, 2)):
        first = free.text.find(stop)
        assert first == len(Letters().decode(ids[:7])) if stop == across else first > 0
        found = run(
            Request("stopped", prompt_ids=prompt, max_new_tokens=limit, stop=("never", stop)),
            Request("free", prompt_ids=prompt, max_new_tokens=limit),
        )
        stopped = found["stopped"]
        assert found["free"] == replace(free, **{k: getattr(found["free"], k) for k in TIMES})
        assert stopped.reason == "stop"
        assert stopped.text == free.text[:first]
        assert (stopped.valid_tokens, stopped.blocks) == (tokens, blocks)
    ignored = run(Request("i", prompt_ids=prompt, max_new_tokens=limit, stop=(across,)), eos="ignore")["i"]
    assert (ignored.reason, ignored.valid_tokens, ignored.blocks) == ("length", 7, 4)


TIMES = ("admitted", "first_block", "ended", "evicted")


# --------------------------------------------------------------------------------------------- online workloads


@pytest.mark.parametrize("clients", [1, 3])
def test_a_closed_loop_keeps_that_many_requests_under_way(clients):
    from blockserve import Workload

    workload = Workload("w", tuple(REQUESTS)).arriving(f"closed:{clients},think=0.01")
    run = engine(slots=8).run(workload)
    assert all(c.reason in ("eos", "length") for c in run.completions)
    assert len(run.completions) == len(REQUESTS)
    assert max(c.batch + c.queue_depth for c in run.trace.cycle_records) == clients
    answered = sorted(c.evicted for c in run.completions)
    sent = sorted(c.arrival for c in run.completions)[clients:]
    for arrival in sent:
        assert any(abs(arrival - 0.01 - t) < 1e-9 for t in answered), "sent the think time after an answer"


def test_a_length_trace_runs_on_the_real_engine(tmp_path):
    from blockserve import Workload

    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,10,3\n0.01,20,17\n0.02,30,9\n")
    workload = Workload.from_trace(tmp_path / "t.csv")
    run = engine(eos="ignore", slots=2).run(workload)
    assert [r.prompt_tokens for r in run.trace.request_records] == [10, 20, 30]
    assert [c.blocks for c in run.completions] == [1, 3, 2]
    assert [len(c.output_ids) for c in run.completions] == [3, 17, 9]
    again = engine(eos="ignore", slots=1).run(workload.arriving("poisson:200", seed=3))
    assert [c.output_ids for c in again.completions] == [c.output_ids for c in run.completions]


def test_stopping_a_closed_loop_accounts_for_those_never_sent():
    from blockserve import Workload

    e = engine(slots=2)
    e.submit(Workload("w", tuple(REQUESTS)).arriving("closed:2"))
    next(iter(e.cycles()))
    assert e.trace.end.status == "interrupted"
    assert {c.id for c in e.trace.completion_records} == {r.id for r in REQUESTS}


def test_a_virtual_clock_jumps_to_the_next_arrival():
    """Arrivals an hour apart: the run takes no hour, and its times say when the requests came."""
    late = [Request(str(i), prompt_ids=(1, 2, 3), max_new_tokens=8, arrival=3600.0 * i) for i in range(3)]
    run = engine(slots=1, clock="virtual").run(late)
    assert [c.admitted for c in run.completions] == [0.0, 3600.0, 7200.0]
    assert run.trace.run.clock == "virtual"
    with pytest.raises(UnknownNameError, match="unknown clock 'sun'"):
        engine(clock="sun")


def test_grading_is_no_part_of_serving(monkeypatch):
    """A grader that takes half a second an answer: the run's own times do not show it."""
    import time

    from blockserve import Workload

    monkeypatch.setattr(Workload, "grade", lambda self, request_id, text: time.sleep(0.5))
    begin = time.perf_counter()
    run = engine(slots=2).run(REQUESTS)
    spent = time.perf_counter() - begin
    assert spent > 0.5 * len(REQUESTS)
    assert run.trace.end.wall < spent - 0.4 * len(REQUESTS)
