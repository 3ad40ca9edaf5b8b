"""Training of the small models: rows as the engine shows them, a loop that resumes exactly."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, replace
from itertools import pairwise

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer

from blockserve.checkpoints import load_model
from blockserve.core import BatchPlan, ConfigError, RowPlan, UnknownNameError
from blockserve.execution.layout import Layout
from blockserve.geometry import num_blocks, row_width
from blockserve.studies.quality import evaluate, markdown_table
from blockserve.training import loop
from blockserve.training.data import RowSource
from blockserve.training.export import export
from blockserve.training.loop import initial_model, learning_rate, masked_logits, train
from blockserve.training.recipes import RECIPES, Phase, Recipe, get_recipe
from blockserve.training.tokenizer import build_tokenizer
from blockserve.training.warm import warm_start
from blockserve.workload.tasks import TASKS, problems, split_of

SMALL = replace(
    RECIPES["tiny-llada"],
    hidden_size=16,
    num_layers=2,
    num_heads=2,
    num_kv_heads=2,
    intermediate_size=24,
    vocab_size=640,
    tasks=("arithmetic",),
    phases=(Phase(0, (1.0,), by_kind=0.0), Phase(6, (1.0,), by_kind=0.5)),
    tokenizer_problems=(3000,),
    base=None,
    learning_rate=2e-3,
    head_scale=1.0,
    steps=12,
    warmup_steps=3,
    batch_rows=10,
    micro_rows=4,
)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    texts = [p.prompt + p.answer for p in problems(TASKS["arithmetic"], 4000, 0, "train")]
    return build_tokenizer(texts, SMALL.vocab_size)


# ------------------------------------------------------------------------------------------- rows

PHASE = SMALL.phases[0]


@pytest.fixture(scope="module")
def source(tokenizer) -> RowSource:
    return RowSource(replace(SMALL, batch_rows=40, micro_rows=8, suffix_odds=(0.4, 0.3, 0.3)), tokenizer)


def prompt_tokens(source: RowSource, truth: np.ndarray) -> int:
    """Tokens up to the question mark that ends every prompt."""
    mark = source.tokenizer.encode("many?").ids[-1]
    return truth.tolist().index(mark) + 1


def check_truth(source: RowSource, row) -> tuple[int, int, int]:
    """The true ids are prompt + answer + end tokens of a training problem; returns prompt, block and suffix length."""
    p, length = prompt_tokens(source, row.truth), row.block_length
    block, rest = divmod(row.start - p, length)
    suffix, odd = divmod(len(row.truth) - row.start - length, length)
    assert rest == odd == 0 and row.truth.shape == row.shown.shape == row.loss_at.shape
    answer = source.tokenizer.decode(row.truth[p:].tolist())
    assert answer.startswith(" ") and "?" not in answer
    ends = row.truth[p:] == source.eos
    assert (np.diff(ends.astype(int)) >= 0).all(), "nothing follows the end"
    if ends.any():
        steps = re.findall(r"([+-] \d+) = ", answer)
        start = re.search(r"\d+", source.tokenizer.decode(row.truth[:p].tolist())).group()
        assert split_of("arithmetic", start + "".join(steps).replace(" ", "")) == "train"
    blocks = num_blocks(TASKS["arithmetic"].max_new_tokens, length)
    assert suffix in {0, min(1, blocks - 1 - block), blocks - 1 - block}
    return p, block, suffix


def test_cycle_rows_show_what_a_refresh_pass_shows(source):
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        length = int(rng.choice((8, 16, 32)))
        row = source.cycle_row(rng, PHASE, length)
        _, block, suffix = check_truth(source, row)
        seen.add((length, suffix, block))
        np.testing.assert_array_equal(row.shown[: row.start], row.truth[: row.start])
        assert (row.shown[row.start :] == source.mask).all()
        assert row.loss_at.nonzero()[0].tolist() == list(range(row.start, row.start + length))
        hidden = row.block_shown == source.mask
        assert hidden.any() and (row.block_shown[~hidden] == row.truth[row.block][~hidden]).all()
    assert {s for _, s, _ in seen} >= {0, 1, 4} and {b for n, _, b in seen if n == 16} == {0, 1, 2, 3, 4}


def test_free_rows_mask_the_answer_anywhere_up_to_the_active_block(source):
    rng = np.random.default_rng(1)
    early = full = 0
    for _ in range(300):
        row = source.free_row(rng, PHASE)
        p, _, _ = check_truth(source, row)
        end = row.start + row.block_length
        hidden = row.shown == source.mask
        assert not hidden[:p].any() and hidden[p:end].any() and hidden[end:].all()
        np.testing.assert_array_equal(row.loss_at[:end], hidden[:end])
        assert not row.loss_at[end:].any()
        np.testing.assert_array_equal(row.shown[~hidden], row.truth[~hidden])
        early += hidden[p : row.start].any()
        full += hidden[p:end].all()
    assert early > 100 and 25 < full < 100


def test_rows_masked_by_kind_show_no_token_that_they_hide(source):
    rng = np.random.default_rng(4)
    repeated = 0
    for _ in range(100):
        row = source.free_row(rng, PHASE, by_kind=True)
        p, _, _ = check_truth(source, row)
        end = row.start + row.block_length
        hidden = row.shown[p:end] == source.mask
        kinds, counts = np.unique(row.truth[p:end][hidden], return_counts=True)
        assert not np.isin(row.shown[p:end], kinds).any()
        repeated += (counts > 1).any()
    assert repeated > 50


def test_rows_of_a_shifted_model_show_the_first_token_that_step_0_commits(source):
    """And the loss at a position is of the logits one column before it, in both passes."""
    dream = replace(SMALL, architecture="dream", num_kv_heads=1)
    shifted = RowSource(dream, source.tokenizer)
    rng = np.random.default_rng(5)
    rows = [shifted.cycle_row(rng, PHASE, 8) for _ in range(20)]
    for row in rows:
        assert row.block_shown[0] == row.truth[row.start]
        assert (row.block_shown == source.mask).any()
    model = initial_model(dream).double()
    assert model.config.shifted and model.config.qkv_bias
    batch = shifted.collate(rows[:1], 1.0)
    (refresh, targets, _), (reuse, reuse_targets, _) = masked_logits(model, batch)
    hidden = model(batch.ids, batch.positions, batch.visible, None)
    at = batch.weight[0].nonzero().flatten()
    torch.testing.assert_close(refresh, model.head(hidden[0, at - 1]))
    assert targets.tolist() == batch.targets[0, at].tolist()
    masked = (rows[0].block_shown == source.mask).nonzero()[0]
    assert len(reuse) == len(masked) and reuse_targets.tolist() == rows[0].truth[rows[0].start + masked].tolist()


def test_rows_are_of_each_task_as_often_as_the_recipe_says(source):
    families = ("arithmetic", "algebra")
    shares = {"phases": (Phase(0, (0.25, 0.75), 0.0),), "tokenizer_problems": (1, 1)}
    both = RowSource(replace(SMALL, tasks=families, **shares), source.tokenizer)
    rng = np.random.default_rng(6)
    texts = [source.tokenizer.decode(both.free_row(rng, both.recipe.phase(0)).truth.tolist()) for _ in range(400)]
    assert 0.18 < np.mean(["How many" in text or "total" in text for text in texts]) < 0.32


def test_batches_are_laid_out_as_the_engine_lays_out_a_plan(source):
    """Against the engine's own layout of a plan with the same prompts, blocks and suffixes."""
    rng = np.random.default_rng(2)
    rows = [source.cycle_row(rng, PHASE, 16) for _ in range(12)]
    batch = source.collate(rows, 1.0)
    plans = []
    for i, row in enumerate(rows):
        p, block, suffix = check_truth(source, row)
        width = row_width(p, block, 5, 16, suffix)
        plans.append(RowPlan(str(i), i, block, 5, p, suffix, width))
    plan = BatchPlan(0, tuple(plans), max(r.width for r in plans), None)
    layout = Layout.of(plan, 16, torch.device("cpu"))
    assert torch.equal(batch.visible, layout.valid)
    assert torch.equal(batch.positions, layout.positions)
    assert torch.equal(batch.reuse.columns, layout.block)
    for i, row in enumerate(rows):
        assert batch.ids[i][batch.visible[i]].tolist() == row.shown.tolist()
        assert batch.targets[i][layout.block[i]].tolist() == batch.reuse.targets[i].tolist()


def test_batch_weights_sum_to_one_and_are_even_by_row(source):
    micros = source.batch(5)
    assert sum(len(m.ids) for m in micros) == 40
    weights = [m.weight for m in micros] + [m.reuse.weight for m in micros if m.reuse]
    assert sum(float(w.sum()) for w in weights) == pytest.approx(1.0, abs=1e-5)
    rows = [row for w in weights for row in w]
    ratio = [float(row.sum()) / float((row > 0).sum()) ** 0.5 for row in rows]  # a row's sum goes as sqrt(masks)
    assert max(ratio) == pytest.approx(min(ratio), rel=1e-4)


def test_the_reuse_pass_sees_the_stale_keys_of_the_refresh_pass(source):
    """Padding changes nothing, and keys kept from the refresh pass are not those of one pass over the filled row."""
    model = initial_model(SMALL).double()
    rng = np.random.default_rng(3)
    rows = [source.cycle_row(rng, PHASE, 8) for _ in range(5)]
    (refresh, _, _), (reuse, _, _) = masked_logits(model, source.collate(rows, 1.0))
    alone = [masked_logits(model, source.collate([row], 1.0)) for row in rows]
    torch.testing.assert_close(refresh, torch.cat([a[0][0] for a in alone]))
    torch.testing.assert_close(reuse, torch.cat([a[1][0] for a in alone]))
    partly = [replace(row, shown=_filled(row), block_shown=None) for row in rows]
    fresh = masked_logits(model, source.collate(partly, 1.0))[0][0]
    assert fresh.shape == refresh.shape and not torch.allclose(fresh[: len(reuse)], reuse[: len(fresh)])


def _filled(row) -> np.ndarray:
    shown = row.shown.copy()
    shown[row.block] = row.block_shown
    return shown


def test_batches_are_a_function_of_recipe_and_step(source):
    def same(a, b):
        return len(a) == len(b) and all(torch.equal(x.ids, y.ids) for x, y in zip(a, b, strict=True))

    other = RowSource(replace(source.recipe, seed=1), source.tokenizer)
    assert same(source.batch(7), source.batch(7))
    never = RowSource(replace(source.recipe, phases=SMALL.phases[:1]), source.tokenizer)
    assert same(source.batch(5), never.batch(5)) and not same(source.batch(6), never.batch(6))
    assert not same(source.batch(7), source.batch(8)) and not same(source.batch(7), other.batch(7))


# ------------------------------------------------------------------------------------------- loop


def weights(result) -> dict[str, torch.Tensor]:
    return result.model.state_dict()


def log_lines(folder) -> list[dict]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def test_a_resumed_run_ends_with_the_same_weights(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "LOG_STEPS", 2)
    whole = train(SMALL, tmp_path / "whole")
    first = train(SMALL, tmp_path / "parts", max_steps=5)
    assert first.steps == 5 and whole.steps == 12
    second = train(SMALL, tmp_path / "parts")
    assert second.minutes >= first.minutes
    for name, weight in weights(whole).items():
        assert torch.equal(weight, weights(second)[name]), name
    losses = {line["step"]: line["loss"] for line in log_lines(tmp_path / "whole")}
    assert losses.keys() == {2, 4, 6, 8, 10, 12} and losses[12] < losses[2]
    assert log_lines(tmp_path / "whole")[-1]["held_out_accuracy"] == pytest.approx(whole.held_out, abs=1e-5)


def test_an_interrupt_keeps_what_is_done(tmp_path, monkeypatch):
    step = loop._Run._train_step

    def interrupted(run):
        if run.step == 4:
            raise KeyboardInterrupt
        return step(run)

    monkeypatch.setattr(loop._Run, "_train_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        train(SMALL, tmp_path)
    monkeypatch.undo()
    assert train(SMALL, tmp_path, max_steps=4).steps == 4
    assert not list(tmp_path.glob("*.partial"))


def test_a_model_starts_from_its_base_token_by_token(tmp_path, monkeypatch):
    """Other tokens: a token that the base has keeps its rows, another is the mean of what the base writes it with."""
    base = replace(SMALL, name="base", vocab_size=600, steps=3)
    monkeypatch.setitem(RECIPES, "base", base)
    started = train(replace(SMALL, base="base", steps=3), tmp_path, max_steps=1)
    first = train(base, tmp_path / "base")
    assert first.steps == 3 and started.minutes >= first.minutes
    fresh = initial_model(SMALL)
    warm_start(fresh, started.tokenizer, first.model, first.tokenizer)
    ours, theirs = fresh.state_dict(), weights(first)
    for name, weight in ours.items():
        if name not in ("embed.weight", "lm_head.weight"):
            assert torch.equal(weight, theirs[name]), name
    for token in (" 7", "a"):
        (i,), (j,) = started.tokenizer.encode(token).ids, first.tokenizer.encode(token).ids
        assert torch.equal(ours["embed.weight"][i], theirs["embed.weight"][j])
    new = next(t for t in started.tokenizer.get_vocab() if t not in first.tokenizer.get_vocab() and t.startswith("Ġ"))
    spelled = first.tokenizer.encode(new.replace("Ġ", " ")).ids
    assert len(spelled) > 1
    torch.testing.assert_close(
        ours["lm_head.weight"][started.tokenizer.token_to_id(new)], theirs["lm_head.weight"][spelled].mean(0)
    )
    moved = (weights(started)["norm.weight"] - theirs["norm.weight"]).abs().max()
    assert 0 < moved < 0.01, "one step away from the base"
    with pytest.raises(ConfigError, match="the base has another shape"):
        warm_start(initial_model(replace(SMALL, num_layers=3)), started.tokenizer, first.model, first.tokenizer)


def test_another_recipe_is_refused_and_starting_anew_is_possible(tmp_path):
    train(SMALL, tmp_path, max_steps=1)
    other = replace(SMALL, learning_rate=0.5)
    with pytest.raises(ConfigError, match=r"another recipe \(learning_rate 0.002 → 0.5\)"):
        train(other, tmp_path, max_steps=1)
    assert train(other, tmp_path, resume=False, max_steps=2).steps == 2


@pytest.mark.parametrize(("architecture", "model_type"), [("llada", "llada"), ("dream", "Dream")])
def test_an_exported_model_is_a_checkpoint_with_a_card(architecture, model_type, tmp_path):
    recipe = replace(SMALL, block_lengths=(16,), block_odds=(1.0,), architecture=architecture, num_kv_heads=1)
    result = train(recipe, tmp_path / "run", max_steps=2)
    (measured,) = export(result, tmp_path / "out", problems=2)
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == model_type
    loaded = load_model(tmp_path / "out", dtype="float32")
    assert loaded.network.config == recipe.model_config()
    for name, weight in weights(result).items():
        torch.testing.assert_close(loaded.network.state_dict()[name], weight.half().float(), rtol=0, atol=0)
    text = "Mia: 7 figs, eats 2. How many?"
    assert loaded.tokenizer.encode(text) == result.tokenizer.encode(text).ids
    assert (loaded.mask_id, loaded.end_ids, loaded.pad_id, loaded.context) == (1, (0,), 0, 512)
    card = json.loads((tmp_path / "out" / "card.json").read_text())
    assert card["steps"] == 2 and card["accuracy"] == {"arithmetic": measured.accuracy}
    assert card["measured"] == [asdict(measured)]
    assert json.loads((tmp_path / "out" / "recipe.json").read_text()) == recipe.to_dict()


def test_the_card_shows_what_eval_prints(tmp_path):
    both = {"tasks": ("facts", "arithmetic"), "phases": (Phase(0, (0.5, 0.5), 0.5),), "tokenizer_problems": (300, 3000)}
    recipe = replace(SMALL, block_lengths=(8, 16), block_odds=(0.5, 0.5), **both)
    measured = export(train(recipe, tmp_path / "run", max_steps=2), tmp_path / "out", problems=2)
    assert [(q.task, q.block_length, q.limit) for q in measured] == [
        ("facts", 8, 16), ("facts", 16, 16), ("arithmetic", 8, 80), ("arithmetic", 16, 80),
    ]  # fmt: skip
    card = (tmp_path / "out" / "card.md").read_text()
    assert "2 of 12 steps" in card and "facts, arithmetic" in card
    assert markdown_table(measured) in card
    again = evaluate(tmp_path / "out", "facts,arithmetic", n=2, block_lengths=(8, 16), dtype="float32", device="cpu")
    assert markdown_table(tuple(again)) in card


def test_a_scaled_head_keeps_every_choice(tmp_path):
    recipe = replace(SMALL, block_lengths=(16,), block_odds=(1.0,), head_scale=0.5)
    result = train(recipe, tmp_path / "run", max_steps=1)
    export(result, tmp_path / "out", problems=1)
    scaled = load_model(tmp_path / "out", dtype="float32").network.state_dict()
    for name, weight in weights(result).items():
        expected = weight * 0.5 if name == "lm_head.weight" else weight
        torch.testing.assert_close(scaled[name], expected.half().float(), rtol=0, atol=0)
    assert "multiplied by 0.5" in (tmp_path / "out" / "card.md").read_text()


def test_training_leaves_global_random_state_alone(tmp_path):
    torch.manual_seed(0)
    before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    train(SMALL, tmp_path, max_steps=1)
    assert torch.equal(before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()


def test_the_learning_rate_warms_up_and_falls_to_zero():
    recipe = replace(SMALL, steps=100, warmup_steps=10, learning_rate=1.0)
    rates = [learning_rate(recipe, step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1) and max(rates) == max(rates[8:12]) and rates[100] == pytest.approx(0)
    assert all(a >= b for a, b in pairwise(rates[10:]))


def test_recipes_are_checked():
    for name, recipe in RECIPES.items():
        assert get_recipe(name) is recipe and recipe.name == name
        assert recipe.base is None or recipe.tasks == tuple(TASKS)
        assert all(sum(phase.task_odds) == pytest.approx(1) for phase in recipe.phases)
        assert all(recipe.phases[-1].task_odds), "at the end every task is drawn"
        assert 0.9e6 < sum(p.numel() for p in initial_model(recipe).parameters()) < 1.2e6
    with pytest.raises(UnknownNameError, match=r"unknown recipe 'tiny-lada'\. Did you mean 'tiny-llada'"):
        get_recipe("tiny-lada")
    with pytest.raises(UnknownNameError, match="unknown task 'sums'"):
        Recipe(name="x", tasks=("sums",), phases=(), tokenizer_problems=(1,))
    bad = (
        {"steps": 0},
        {"learning_rate": 0.0},
        {"free_share": 1.5},
        {"block_odds": (1.0,)},
        {"phases": ()},
        {"tokenizer_problems": ()},
    )
    for change in bad:
        with pytest.raises(ConfigError, match=next(iter(change))):
            replace(SMALL, **change)
    with pytest.raises(ConfigError, match="phases must begin with one from step 0"):
        replace(SMALL, phases=(Phase(3, (1.0,), 0.0),))
    with pytest.raises(ConfigError, match=r"task_odds \(0.5, 0.5\) are not one for each"):
        replace(SMALL, phases=(Phase(0, (0.5, 0.5), 0.0),))
    with pytest.raises(ConfigError, match="by_kind"):
        Phase(0, (1.0,), 2.0)
