"""From a trained model to a checkpoint folder with a card of what was measured through the real engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch

from blockserve.checkpoints import dream, llada
from blockserve.execution.model import BidirectionalTransformer
from blockserve.studies.quality import Quality, evaluate, markdown_table
from blockserve.training.loop import TrainResult
from blockserve.training.tokenizer import EOS, MASK

SAVE = {"llada": llada.save, "dream": dream.save}
CARD_BLOCK_LENGTH = 16  # of the one accuracy that a list of models shows


def export(result: TrainResult, folder: str | Path, *, problems: int = 200) -> tuple[Quality, ...]:
    """Write ``result`` as a float16 checkpoint, measure it as `load_model` reads it, and write its card.

    The checkpoint is in the format of the recipe's architecture. ``problems``: unseen problems a task to measure on,
    at each of the recipe's block lengths. The folder gets ``config.json``, ``model.safetensors``, ``tokenizer.json``,
    ``recipe.json``, ``card.json`` (the figures) and ``card.md`` (for people).
    """
    folder, recipe = Path(folder), result.recipe
    end, mask = result.tokenizer.token_to_id(EOS), result.tokenizer.token_to_id(MASK)
    model = _with_scaled_head(result.model, recipe.head_scale)
    SAVE[recipe.architecture](model, folder, mask_id=mask, eos_id=end, pad_id=end, dtype=torch.float16)
    result.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "recipe.json").write_text(json.dumps(recipe.to_dict(), indent=2) + "\n")
    measured = _measure(folder, result, problems)
    (folder / "card.json").write_text(json.dumps(_figures(result, measured), indent=2) + "\n")
    (folder / "card.md").write_text(_card(result, measured))
    return measured


def _measure(folder: Path, result: TrainResult, problems: int) -> tuple[Quality, ...]:
    lengths = sorted(result.recipe.block_lengths)
    where = {"device": "cpu", "dtype": "float32"}
    return tuple(evaluate(folder, result.recipe.tasks, n=problems, block_lengths=lengths, progress=True, **where))


def _with_scaled_head(model: BidirectionalTransformer, scale: float) -> BidirectionalTransformer:
    """``model``, its logits multiplied by ``scale``; the given model is left as it is."""
    if scale == 1.0:
        return model
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        scaled.lm_head.weight.mul_(scale)
    return scaled


def _parameters(result: TrainResult) -> int:
    return sum(p.numel() for p in result.model.parameters())


def _figures(result: TrainResult, measured: Sequence[Quality]) -> dict[str, object]:
    return {
        "parameters": _parameters(result),
        "tasks": list(result.recipe.tasks),
        "steps": result.steps,
        "minutes": round(result.minutes, 1),
        "held_out": result.held_out,
        "accuracy": {q.task: q.accuracy for q in measured if q.block_length == CARD_BLOCK_LENGTH},
        "measured": [asdict(q) for q in measured],
    }


CARD = """# {name}

A small masked-diffusion language model in {format} format, made for BlockServe: {parameters:,} parameters,
{layers} layers, width {width}, {heads}, {vocabulary} tokens, context {context}. It is there to give the engine
real, uneven work on a laptop; it knows nothing but its tasks: {tasks}.

## Training
`blockserve train --recipe {name}`: seed {seed}, {steps:,} of {planned:,} steps of {rows} rows, {minutes:.0f} minutes.
Masked tokens right on held-out rows: {held_out:.2%}. All settings: `recipe.json`. Training and test problems are split
by a hash of what makes a problem this problem, so that no test problem was seen in any wording.
{scaled}
## Measured
`blockserve eval --model FOLDER --tasks {task_list} -n {problems} --seed {measure_seed} --block-length {lengths}
--device cpu --dtype float32`, where FOLDER is this one: unseen problems of each task through the engine,
`eos="settled"`; these float16 weights, computed in float32. *limit*: tokens an answer may have, and the blocks that
they fill. *steps a block*: denoise steps, mean and coefficient of variation. *row pass*: one row's part in a forward.

{table}
"""

SCALED = """
The head's weights were multiplied by {scale:g} after training. The most likely token of every position is the one that
was learned; confidences are spread out, so that at a threshold a block takes several steps, as in large models.
"""


def _card(result: TrainResult, measured: Sequence[Quality]) -> str:
    recipe = result.recipe
    shared_keys = f" ({recipe.num_kv_heads} of keys and values)" if recipe.num_kv_heads != recipe.num_heads else ""
    return CARD.format(
        name=recipe.name,
        format={"llada": "LLaDA's", "dream": "Dream's"}[recipe.architecture],
        parameters=_parameters(result),
        layers=recipe.num_layers,
        width=recipe.hidden_size,
        heads=f"{recipe.num_heads} heads{shared_keys}",
        vocabulary=recipe.vocab_size,
        context=recipe.max_positions,
        tasks=", ".join(recipe.tasks),
        task_list=",".join(recipe.tasks),
        seed=recipe.seed,
        steps=result.steps,
        planned=recipe.steps,
        rows=recipe.batch_rows,
        minutes=result.minutes,
        held_out=result.held_out,
        problems=measured[0].problems,
        measure_seed=measured[0].seed,
        lengths=",".join(map(str, sorted(recipe.block_lengths))),
        scaled=SCALED.format(scale=recipe.head_scale) if recipe.head_scale != 1.0 else "",
        table=markdown_table(measured),
    )
