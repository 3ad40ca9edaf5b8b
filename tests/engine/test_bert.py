"""BERT-style masked models: transformers' own logits and tokens, the engine's promises, one clear message a fault.

Tiny random models in folders as transformers saves them; then AntiBERTy, whose confidences nobody here planned.
"""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import BertConfig, BertForMaskedLM, BertTokenizer

from blockserve import Engine, Factor, Quota, Request, Threshold
from blockserve.checkpoints import load_model
from blockserve.cli import app
from blockserve.core import BatchPlan, CheckpointError, InvalidRequestError, RowPlan
from blockserve.execution.cache import KVCache, Write
from blockserve.execution.layout import Layout, gather_columns
from blockserve.studies.invariance import WAYS
from blockserve.workload.antibodies import STARTS, antibodies
from blockserve.workload.antibodies import main as print_prompts

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "ACDEFGHIKLMNPQRSTVWY"
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48)


def write_bert(folder: Path, vocabulary=(*SPECIAL, *LETTERS), pickled=False, **config) -> BertForMaskedLM:
    """A random model saved by transformers, with a ``vocab.txt``; returns the model."""
    folder.mkdir(exist_ok=True)
    torch.manual_seed(11)
    options = SIZES | {"vocab_size": len(vocabulary), "max_position_embeddings": 128} | config
    model = BertForMaskedLM(BertConfig(**options)).eval()
    for name, parameter in model.named_parameters():  # biases start at zero: make every weight count
        torch.nn.init.normal_(parameter, mean=1.0 if name.endswith("LayerNorm.weight") else 0.0, std=0.25)
    model.save_pretrained(folder)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(model.state_dict(), folder / "pytorch_model.bin")
    (folder / "vocab.txt").write_text("\n".join(vocabulary))
    return model


def layout_of(*lengths: int) -> Layout:
    """Left-padded rows of these lengths."""
    width = max(lengths)
    rows = tuple(RowPlan(str(i), i, 0, 1, n - 1, 0, n) for i, n in enumerate(lengths))
    return Layout.of(BatchPlan(0, rows, width, None), 1, torch.device("cpu"))


def random_ids(rows: int, columns: int) -> torch.Tensor:
    return torch.randint(0, len(SPECIAL) + len(LETTERS), (rows, columns), generator=torch.Generator().manual_seed(3))


def chains(*sizes: tuple[int, int]) -> list[Request]:
    """Requests of random letters: (prompt letters, limit) each."""
    rng = np.random.default_rng(5)
    return [
        Request(str(i), "".join(rng.choice(list(LETTERS), p)), max_new_tokens=g, seed=i)
        for i, (p, g) in enumerate(sizes)
    ]


SIX = ((3, 24), (19, 30), (7, 8), (40, 16), (11, 37), (1, 24))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("bert")
    write_bert(path)
    return path


@pytest.fixture(scope="module")
def model(folder):
    return load_model(folder, dtype="float64")


# -------------------------------------------------------------------------------- against transformers


@torch.no_grad()
@pytest.mark.parametrize(
    "options",
    [{}, {"tie_word_embeddings": False}, {"pickled": True}, {"hidden_act": "relu", "type_vocab_size": 1}],
    ids=["tied", "untied", "pickled", "relu"],
)
@pytest.mark.parametrize("lengths", [(31, 31), (31, 9, 17), (5, 40, 1)])
def test_logits_equal_transformers_own_with_left_padding(options, lengths, tmp_path, record_count):
    theirs, network = write_bert(tmp_path, **options), load_model(tmp_path).network
    layout, ids = layout_of(*lengths), random_ids(len(lengths), max(lengths))
    expected = theirs(ids, attention_mask=layout.valid.long(), position_ids=layout.positions).logits
    got = network.head(network(ids, layout.positions, layout.visible))
    assert torch.isfinite(got).all()
    torch.testing.assert_close(got[layout.valid], expected[layout.valid], rtol=1e-5, atol=1e-5)
    record_count("rows against transformers' own BERT", len(lengths))


@torch.no_grad()
def test_older_key_names_and_heads_for_other_questions_are_read_over(folder, tmp_path):
    expected = load_model(folder).network
    weights = load_file(folder / "model.safetensors")
    renamed = {
        key.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for key, tensor in weights.items()
    }
    others = {"bert.pooler.dense.weight": (32, 32), "cls.species.weight": (6, 32), "bert.embeddings.position_ids": (1,)}
    renamed |= {key: torch.zeros(shape) for key, shape in others.items()}
    for name in ("config.json", "vocab.txt"):
        (tmp_path / name).write_text((folder / name).read_text())
    save_file(renamed, tmp_path / "model.safetensors")
    got = load_model(tmp_path).network
    ids, positions = random_ids(2, 9), torch.arange(9).expand(2, -1)
    assert torch.equal(got.head(got(ids, positions)), expected.head(expected(ids, positions)))


@torch.no_grad()
@pytest.mark.parametrize("lengths", [(20, 20), (20, 12, 9)])
def test_a_reuse_pass_equals_a_full_pass_where_it_must(model, lengths):
    """With the same tokens, whatever the piece; with other tokens, if the piece is all that has changed them: the
    whole row. A piece that sees stale keys of its neighbours differs."""
    network, layout, ids = model.network, layout_of(*lengths), random_ids(len(lengths), max(lengths))
    block = torch.arange(12, 20).expand(len(lengths), -1)
    whole = torch.arange(20).expand(len(lengths), -1)

    def reuse(new_ids, columns):
        cache = KVCache()
        network(ids, layout.positions, layout.visible, cache)
        places = gather_columns(layout.positions, columns)
        write = cache.writing(Write(columns.contiguous()))
        return network(gather_columns(new_ids, columns), places, layout.visible, write)

    full = network(ids, layout.positions, layout.visible)
    torch.testing.assert_close(reuse(ids, block), full[:, 12:], rtol=0, atol=1e-12)
    other = ids.clone()
    other[:, 14] = (other[:, 14] + 1) % 25
    full = network(other, layout.positions, layout.visible)
    torch.testing.assert_close(reuse(other, whole)[layout.valid], full[layout.valid], rtol=0, atol=1e-12)
    assert (reuse(other, block) - full[:, 12:]).abs().max() > 1e-3


def by_hand(theirs: BertForMaskedLM, prompt: list[int], blocks: int, length: int, tau: float) -> list[int]:
    """Block by block with full passes of transformers' own model: the tokens of cache mode ``none``."""
    ids = torch.tensor([prompt])
    for _ in range(blocks):
        ids = torch.cat((ids, torch.full((1, length), 4)), 1)
        while (masked := ids[0, -length:] == 4).any():
            logits = theirs(ids).logits[0, -length:]
            confidence = logits.softmax(-1)
            confidence[:, :5] = 0  # special tokens: banned, but they keep their share of the softmax
            best, tokens = confidence.max(-1)
            best[~masked] = -1
            chosen = (best >= tau) & masked
            chosen[best.argmax()] = True
            ids[0, -length:][chosen] = tokens[chosen]
    return ids[0, len(prompt) :].tolist()


@torch.no_grad()
def test_without_a_cache_the_engine_writes_what_transformers_own_model_writes(folder, model, record_count):
    theirs = BertForMaskedLM.from_pretrained(folder, dtype=torch.float64).eval()
    requests = chains((3, 24), (19, 32), (7, 8), (40, 16))
    run = Engine(model, "blockserve-fixed", slots=3, block_length=8, cache="none", threshold=0.5).run(requests)
    for request, done in zip(requests, run.completions, strict=True):
        prompt = model.tokenizer.encode(request.prompt)
        assert list(done.output_ids) == by_hand(theirs, prompt, request.max_new_tokens // 8, 8, 0.5)
        record_count("BERT requests against full passes of transformers", 1)
    assert 1 < run.trace.rows.steps.mean() < 8, "all at once or one by one would test little"


@pytest.mark.parametrize("suffix", [0, 1])
def test_one_layer_writes_the_same_with_any_cache(tmp_path, suffix):
    """The keys of a single layer depend on a position's own token alone, so no cached key is ever stale."""
    write_bert(tmp_path, num_hidden_layers=1)
    single = load_model(tmp_path, dtype="float64")
    options = {"slots": 3, "block_length": 8, "threshold": 0.5, "suffix": suffix}
    texts = [Engine(single, "static", cache=c, **options).run(chains(*SIX)).texts for c in ("dual", "prefix", "none")]
    assert texts[0] == texts[1] == texts[2]


# --------------------------------------------------------------------------------- the engine's promises


@pytest.mark.parametrize("temperature", [0.0, 2.0])
def test_banned_tokens_are_never_committed(tmp_path, temperature, record_count):
    theirs = write_bert(tmp_path)
    with torch.no_grad():
        theirs.cls.predictions.bias[: len(SPECIAL)] += 30  # nothing else would be chosen
    theirs.save_pretrained(tmp_path)
    eager = load_model(tmp_path)
    assert eager.banned_ids == tuple(range(len(SPECIAL)))
    assert eager.end_ids == ()
    run = Engine(eager, "blockserve-fixed", slots=4, block_length=8, temperature=temperature).run(chains(*SIX))
    for done in run.completions:
        assert done.reason == "length"
        assert not set(done.output_ids) & set(eager.banned_ids)
        record_count("tokens of a model that wants only banned ones", len(done.output_ids))
    assert (run.trace.rows.steps == 8).all(), "they keep their share of the softmax: no token is ever sure"


def test_a_token_that_the_config_says_ends_a_text_is_not_banned_and_ends_it(tmp_path):
    theirs = write_bert(tmp_path, eos_token_id=3)
    with torch.no_grad():
        theirs.cls.predictions.bias[3] += 30
    theirs.save_pretrained(tmp_path)
    ending = load_model(tmp_path)
    assert ending.end_ids == (3,) and ending.banned_ids == (0, 1, 2, 4)
    done = Engine(ending, "blockserve-fixed", slots=4, block_length=8).run(chains((5, 24))).completions[0]
    assert (done.reason, done.valid_tokens, done.text) == ("eos", 0, "")


PRESETS = {
    "static": {"slots": 4},
    "blockserve-fixed": {"slots": 3},
    "blockserve-budget": {"token_budget": 100, "order": "shortest_first"},
    "vanilla": {"slots": 3},
}


@pytest.mark.parametrize("rule", [Threshold(0.5), Quota(3), Factor(1.0)], ids=["threshold", "quota", "factor"])
@pytest.mark.parametrize("cache", ["dual", "prefix", "none"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_mixed_batch_writes_what_each_request_writes_alone(model, preset, cache, rule, record_count):
    options = {"block_length": 8, "cache": cache, "rule": rule, "suffix": 1 if cache == "prefix" else 0, "check": True}
    requests = chains(*SIX)
    run = Engine(model, preset, **PRESETS[preset], **options).run(requests)
    alone = [Engine(model, preset, slots=1, **options).run([r]).completions[0] for r in requests]
    assert [c.output_ids for c in run.completions] == [c.output_ids for c in alone]
    preempted = run.trace.cycles.preempted.sum()
    assert preempted > 0 or preset != "blockserve-budget"
    record_count("BERT requests, mixed and alone (float64)", len(requests))
    record_count("preemptions among them", preempted)


def test_the_automatic_budget_and_the_manifest_know_the_sizes(model):
    engine = Engine(model, block_length=8)
    record = engine.run(chains((3, 8))).trace.run
    assert engine.config.policy.bound.tokens == 8 * 128  # eight rows of the whole context
    assert (record.model["layers"], record.model["hidden_size"], record.model["vocab_size"]) == (2, 32, 25)


# ------------------------------------------------------------------------------------------- tokenizers


def test_a_vocabulary_of_letters_is_read_and_written_letter_by_letter(model):
    ids = model.tokenizer.encode("[CLS]EVQL")
    assert ids == [2, *(len(SPECIAL) + LETTERS.index(letter) for letter in "EVQL")]
    assert model.tokenizer.decode(ids) == "EVQL"


@pytest.mark.parametrize("lower", [True, False])
def test_a_vocabulary_of_word_pieces_gives_the_ids_of_transformers(tmp_path, lower):
    words = [*SPECIAL, "the", "The", "fox", "jump", "##ed", "##s", ",", "gru", "##ße", "!", "x"]
    write_bert(tmp_path, vocabulary=words)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lower}))
    theirs = BertTokenizer.from_pretrained(tmp_path, do_lower_case=lower)
    ours = load_model(tmp_path).tokenizer
    for text in ("The fox jumped, the fox jumps!", "[CLS] Grüße the [MASK] 你好 fox", "THE"):
        assert ours.encode(text) == theirs.encode(text, add_special_tokens=False)
    assert ours.decode(ours.encode("[CLS] the fox jumped!")) == "the fox jumped!"


# ----------------------------------------------------------------------------------------------- faults


def changed_config(**values):
    def change(folder: Path) -> None:
        path = folder / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | values))

    return change


def changed_weights(change):
    def rewrite(folder: Path) -> None:
        weights = load_file(folder / "model.safetensors")
        change(weights)
        save_file(weights, folder / "model.safetensors")

    return rewrite


def scripted_pickle(folder: Path) -> None:
    """A pickle that would run code when it is loaded in full."""
    (folder / "model.safetensors").unlink()
    torch.save({"run": print}, folder / "pytorch_model.bin")


def nested_pickle(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    torch.save({"state_dict": {"x": torch.zeros(1)}}, folder / "pytorch_model.bin")


def no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
FAULTS = {
    "missing key": (changed_weights(lambda w: w.pop(QUERY)), rf"the key '{QUERY}' is missing \(1 keys in all\)"),
    "wrong shape": (
        changed_weights(lambda w: w.update({QUERY: torch.zeros(32, 31)})),
        rf"model.safetensors: the key '{QUERY}' has shape \(32, 31\), the config asks for \(32, 32\)",
    ),
    "unknown key": (
        changed_weights(lambda w: w.update({"bert.extra": torch.zeros(1)})),
        "model.safetensors: the key 'bert.extra' is not expected",
    ),
    "no head": (changed_config(tie_word_embeddings=False), "the key 'cls.predictions.decoder.weight' is missing"),
    "missing field": (changed_config(hidden_size=None), "config.json: the field 'hidden_size' is missing"),
    "impossible shape": (changed_config(num_attention_heads=5), r"config.json: no BERT can have this shape \(.*heads"),
    "unknown activation": (changed_config(hidden_act="gulp"), r"config.json: no BERT can have this shape \(.*gulp"),
    "relative positions": (
        changed_config(position_embedding_type="relative_key"),
        "position_embedding_type must be 'absolute', got 'relative_key'",
    ),
    "a decoder": (changed_config(is_decoder=True), "config.json: is_decoder is true"),
    "code in a pickle": (scripted_pickle, r"pytorch_model.bin: not a file of plain tensors"),
    "tensors one floor down": (nested_pickle, r"pytorch_model.bin: must hold tensors by their keys"),
    "no weights": (no_weights, "neither model.safetensors nor .* is there, nor a pytorch_model.bin"),
    "no mask": (
        lambda folder: (folder / "vocab.txt").write_text("\n".join(["[UNK]", *LETTERS])),
        r"'mask_token_id' is missing, and the tokenizer has no '\[MASK\]'",
    ),
    "no unknown": (
        lambda folder: (folder / "vocab.txt").write_text("\n".join(["[MASK]", *LETTERS])),
        r"vocab.txt: the vocabulary has no '\[UNK\]'",
    ),
    "another family": (changed_config(model_type="roberta"), "model_type 'roberta' is not supported; known: .*bert"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_the_folder_is_named_with_its_file_and_key(tmp_path, fault):
    spoil, message = FAULTS[fault]
    write_bert(tmp_path)
    spoil(tmp_path)
    with pytest.raises(CheckpointError, match=message) as caught:
        load_model(tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (
            Request("long", "A" * 100, max_new_tokens=30),
            r"'long' needs 100 prompt \+ 32 new = 132 tokens, .* context of 128; the largest limit that fits is 24",
        ),
        (Request("odd", "EVQBL"), "request 'odd': 'B' at position 3 is not in the model's alphabet; write ACDEFGHIK"),
        (Request("small", "evql"), "request 'small': 'e' at position 0"),
        (Request("two lines", "EV\nQL"), r"request 'two lines': '\\n' at position 2"),
        (Request("masked", "EV[MASK]QL"), r"'masked' holds the mask token \(4\) at position 2"),
    ],
    ids=lambda value: value.id if isinstance(value, Request) else "",
)
def test_a_prompt_that_cannot_be_served_is_refused_with_its_reason(model, request_, message):
    with pytest.raises(InvalidRequestError, match=message):
        Engine(model, "blockserve-fixed", slots=2, block_length=8).run([request_])


def test_without_its_package_antiberty_says_what_to_install(monkeypatch):
    from blockserve.checkpoints import hub

    monkeypatch.setattr(hub, "find_spec", lambda name: None)
    with pytest.raises(CheckpointError, match=r"'antiberty' .* not installed; pip install 'blockserve\[antibody\]'"):
        load_model("antiberty")


# -------------------------------------------------------------------------- a model nobody here trained


@pytest.fixture(scope="module")
def antiberty():
    if find_spec("antiberty") is None:
        pytest.skip("the package antiberty is not installed (the extra `antibody`, 97 MB)")
    return load_model("antiberty")


def test_the_prompts_are_starts_of_chains_of_many_lengths():
    lengths = sorted(len(start) for start in STARTS.values())
    assert (len(lengths), lengths[0], lengths[-1]) == (12, 10, 60)
    assert not set("".join(STARTS.values())) - set(LETTERS)
    assert [r.id for r in antibodies(2)] == ["IGHV3-23", "IGKV1-39"]
    with pytest.raises(ValueError, match="there are 12 starts of chains, got n = 13"):
        antibodies(13)


@torch.no_grad()
def test_antiberty_has_the_logits_of_transformers_own_model(antiberty):
    folder = Path(find_spec("antiberty").submodule_search_locations[0]) / "trained_models" / "AntiBERTy_md_smooth"
    theirs = BertForMaskedLM.from_pretrained(folder).eval()
    prompts = [antiberty.tokenizer.encode(start) for start in STARTS.values()]
    layout = layout_of(*(len(ids) for ids in prompts))
    ids = torch.tensor([[0] * (60 - len(p)) + p for p in prompts])
    expected = theirs(ids, attention_mask=layout.valid.long(), position_ids=layout.positions).logits
    got = antiberty.network.head(antiberty.network(ids, layout.positions, layout.visible))
    torch.testing.assert_close(got[layout.valid], expected[layout.valid], rtol=1e-5, atol=1e-4)
    assert antiberty.banned_ids == (0, 1, 2, 3, 4) and antiberty.context == 512


def test_antiberty_writes_the_same_chains_in_mixed_batches_and_alone(antiberty, record_count, record_spread):
    options = {"block_length": 32, "check": True}
    alone = Engine(antiberty, "blockserve-fixed", slots=1, **options).run(antibodies())
    preempted = 0
    for preset, bound in {
        "blockserve-fixed": {"slots": 8},
        "blockserve-budget": {"token_budget": 330, "order": "shortest_first"},
    }.items():
        run = Engine(antiberty, preset, **bound, **options).run(antibodies())
        assert run.texts == alone.texts, preset
        preempted += run.trace.cycles.preempted.sum()
        record_count("antibody chains, mixed and alone (float32)", len(run.completions))
    assert preempted > 0
    assert all(len(text) == 64 and not set(text) - set(LETTERS) for text in alone.texts.values())
    steps = alone.trace.rows.steps.tolist()
    assert len(steps) == 24
    assert max(steps) > 2 * min(steps), "requests unlike one another are what block scheduling is for"
    record_spread("denoise steps of AntiBERTy's blocks of 32", steps)


def test_antiberty_continues_a_germline_chain_as_antibodies_go_on(antiberty):
    """Framework 2 and 3 of IGHV3-23 are nearly the same in all human heavy chains of its family."""
    text = Engine(antiberty, "blockserve-fixed", slots=1, block_length=32).run(antibodies(1)).texts["IGHV3-23"]
    assert "WVRQAPGKGLEWV" in text
    assert "RFTISRDN" in text


def test_a_chain_beyond_antibertys_positions_is_refused(antiberty):
    with pytest.raises(
        InvalidRequestError, match=r"'x' needs 450 prompt \+ 64 new = 514 tokens, .* context of 512; .* fits is 32"
    ):
        Engine(antiberty, block_length=32).run([Request("x", "E" * 450, max_new_tokens=64)])


def test_the_invariance_study_runs_on_a_masked_model(folder, tmp_path):
    """On the command line, with the prompts as the module prints them."""
    printed, answer = StringIO(), StringIO()
    with redirect_stdout(printed):
        print_prompts()
    (tmp_path / "antibodies.jsonl").write_text(printed.getvalue())
    options = ["--prompts", str(tmp_path / "antibodies.jsonl"), "--block-length", "16", "--dtype", "float64"]
    with redirect_stdout(answer):
        app(["check-invariance", "--model", str(folder), *options], standalone_mode=False)
    line = json.loads(answer.getvalue().splitlines()[-1])
    assert (line["requests"], line["lowest"], set(line["agreement"])) == (12, 1.0, set(WAYS))
