"""Prompts in a checkpoint's own chat template: what the two families' templates write, and what may be missing."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer

from blockserve import Engine, Workload, load_model
from blockserve.checkpoints.hub import ZOO
from blockserve.core import CheckpointError, Request

# As the two families write a conversation; ours, not theirs, in the same form.
LLADA = (
    "{% for m in messages %}{% if loop.first %}{{ bos_token }}{% endif %}"
    "<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ m['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIALS = ("<|startoftext|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>", "<|im_start|>", "<|im_end|>")
WRITTEN = {
    LLADA: "<|startoftext|><|start_header_id|>user<|end_header_id|>\n\nHow many?<|eot_id|>"
    "<|start_header_id|>assistant<|end_header_id|>\n\n",
    CHATML: "<|im_start|>user\nHow many?<|im_end|>\n<|im_start|>assistant\n",
}


@pytest.fixture
def folder(tmp_path) -> Path:
    """The packaged model, its tokenizer taught the special tokens of conversations in place of rare merges."""
    shutil.copytree(ZOO / "tiny_llada", tmp_path / "model")
    path = tmp_path / "model" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    merges, vocabulary = tokenizer["model"]["merges"], tokenizer["model"]["vocab"]
    freed = [vocabulary.pop("".join(merges.pop())) for _ in SPECIALS]
    vocabulary |= dict(zip(SPECIALS, freed, strict=True))
    path.write_text(json.dumps(tokenizer))
    changed = Tokenizer.from_file(str(path))
    changed.add_special_tokens([AddedToken(token, special=True) for token in SPECIALS])
    changed.save(str(path))
    return tmp_path / "model"


def write_config(folder: Path, **fields) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<|startoftext|>"} | fields))


@pytest.mark.parametrize("template", WRITTEN, ids=["llada", "chatml"])
@pytest.mark.parametrize("place", ["field", "named", "file"])
def test_a_prompt_becomes_a_users_turn(folder, template, place):
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": template}]
    write_config(folder, **{"file": {}, "field": {"chat_template": template}, "named": {"chat_template": named}}[place])
    if place == "file":
        (folder / "chat_template.jinja").write_text(template)
    model, plain = load_model(folder, chat=True), load_model(folder)
    assert model.chat and not plain.chat
    ids = model.tokenizer.encode("How many?")
    assert ids == plain.tokenizer.encode(WRITTEN[template])
    assert {plain.tokenizer.id_of(token) for token in SPECIALS if token in WRITTEN[template]} <= set(ids)
    assert model.tokenizer.decode(ids) == plain.tokenizer.decode(ids)


def test_the_engine_serves_turns_and_the_manifest_says_so(folder):
    write_config(folder, chat_template=CHATML, bos_token={"content": "<|startoftext|>"})
    requests = Workload("one", (Request("a", "How many?", max_new_tokens=16),))
    run = Engine(folder, chat=True).run(requests)
    assert run.trace.run.model["chat"] is True
    (record,) = run.trace.request_records
    assert record.prompt_tokens == len(load_model(folder).tokenizer.encode(WRITTEN[CHATML]))
    assert Engine(folder).run(requests).trace.run.model["chat"] is False


def test_a_missing_or_broken_template_is_one_clear_message(folder):
    with pytest.raises(CheckpointError, match=r"no chat template, neither as chat_template.jinja nor in tokenizer_con"):
        load_model(folder, chat=True)
    write_config(folder, chat_template="{{ raise_exception('no system role') }}")
    with pytest.raises(CheckpointError, match=r"the chat template cannot be rendered .*no system role"):
        load_model(folder, chat=True).tokenizer.encode("x")
    (folder / "tokenizer_config.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"tokenizer_config.json: not JSON"):
        load_model(folder, chat=True)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(CheckpointError, match="chat needs a tokenizer, and the folder has none"):
        load_model(folder, chat=True)
