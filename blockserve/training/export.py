"""From a trained model to a checkpoint folder with a card of what was measured through the real engine."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from blockserve.checkpoints import llada, load_model
from blockserve.core import Completion
from blockserve.engine import Engine
from blockserve.execution.model import BidirectionalTransformer
from blockserve.training.loop import TrainResult
from blockserve.training.tokenizer import EOS, MASK
from blockserve.workload.sources import Workload

SEED = 7  # of the measuring workload


@dataclass(frozen=True)
class Measured:
    """Quality of a model on unseen problems of one task at one block length (threshold 0.9, dual cache, no suffix).

    ``accuracy``: share of right final answers; ``all_steps``: share of answers with every step right;
    ``blocks_*``: blocks an answer took; ``steps_*``: denoise steps a block took, mean and coefficient of variation.
    """

    task: str
    block_length: int
    problems: int
    accuracy: float
    all_steps: float
    blocks_mean: float
    blocks_max: int
    steps_mean: float
    steps_cv: float


def export(result: TrainResult, folder: str | Path, *, problems: int = 200) -> tuple[Measured, ...]:
    """Write ``result`` as a float16 LLaDA checkpoint, measure it as `load_model` reads it, and write its card.

    ``problems``: unseen problems a task to measure on. The folder gets ``config.json``, ``model.safetensors``,
    ``tokenizer.json``, ``recipe.json``, ``card.json`` (the figures) and ``card.md`` (for people).
    """
    folder = Path(folder)
    end, mask = result.tokenizer.token_to_id(EOS), result.tokenizer.token_to_id(MASK)
    llada.save(
        _with_scaled_head(result.model, result.recipe.head_scale),
        folder,
        mask_id=mask,
        eos_id=end,
        pad_id=end,
        dtype=torch.float16,
    )
    result.tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "recipe.json").write_text(json.dumps(result.recipe.to_dict(), indent=2) + "\n")
    measured = tuple(measure(folder, result.recipe.tasks, sorted(result.recipe.block_lengths), problems))
    (folder / "card.json").write_text(json.dumps(_figures(result, measured), indent=2) + "\n")
    (folder / "card.md").write_text(_card(result, measured))
    return measured


def measure(
    model: str | Path, tasks: Sequence[str], block_lengths: Sequence[int], n: int = 200, seed: int = SEED
) -> Iterator[Measured]:
    """Measure a model on ``n`` test problems of each task, through the engine, at each block length."""
    loaded = load_model(model, dtype="float32")
    for task in tasks:
        workload = Workload.tasks(task, n=n, seed=seed)
        for length in block_lengths:
            run = Engine(loaded, preset="blockserve-fixed", slots=16, block_length=length, threshold=0.9).run(workload)
            steps = run.trace.rows["steps"]
            blocks = [c.blocks for c in run.completions]
            yield Measured(
                task,
                length,
                n,
                accuracy=sum(bool(c.correct) for c in run.completions) / n,
                all_steps=sum(_all_steps(workload, c) for c in run.completions) / n,
                blocks_mean=round(sum(blocks) / n, 2),
                blocks_max=max(blocks),
                steps_mean=round(float(steps.mean()), 2),
                steps_cv=round(float(steps.std() / steps.mean()), 2),
            )


def _with_scaled_head(model: BidirectionalTransformer, scale: float) -> BidirectionalTransformer:
    """``model``, its logits multiplied by ``scale``; the given model is left as it is."""
    if scale == 1.0:
        return model
    scaled = copy.deepcopy(model)
    with torch.no_grad():
        scaled.lm_head.weight.mul_(scale)
    return scaled


def _all_steps(workload: Workload, completion: Completion) -> bool:
    grade = workload.grade(completion.request_id, completion.text)
    return grade is not None and grade.all_steps_correct


def _figures(result: TrainResult, measured: Sequence[Measured]) -> dict[str, object]:
    at_16 = {m.task: m.accuracy for m in measured if m.block_length == 16}
    return {
        "parameters": sum(p.numel() for p in result.model.parameters()),
        "tasks": list(result.recipe.tasks),
        "steps": result.steps,
        "minutes": round(result.minutes, 1),
        "accuracy": at_16,
        "measured": [asdict(m) for m in measured],
    }


CARD = """# {name}

A small masked-diffusion language model in LLaDA's format, made for BlockServe: {parameters:,} parameters,
{layers} layers, width {width}, {heads} heads, {vocabulary} tokens, context {context}. It is there to give the engine
real, uneven work on a laptop; it knows nothing but its tasks: {tasks}.

## Training
`blockserve train --recipe {name}`: seed {seed}, {steps:,} of {planned:,} steps of {rows} rows, {minutes:.0f} minutes.
Masked tokens right on held-out rows: {held_out:.2%}. All settings: `recipe.json`. Training and test problems are split
by a hash of their numbers and operations, so that no test problem was seen in any wording.
{scaled}
## Measured
{problems} unseen problems a task (`Workload.tasks(task, n={problems}, seed={measure_seed})`) through the engine:
threshold 0.9, dual cache, no suffix, `eos="settled"`, limit 80; these float16 weights, computed in float32.

| task | L | final answer right | every step right | blocks, mean (max) | denoise steps a block, mean (CV) |
|---|---|---|---|---|---|
{table}
"""

SCALED = """
The head's weights were multiplied by {scale:g} after training. The most likely token of every position is the one that
was learned; confidences are spread out, so that at a threshold a block takes several steps, as in large models.
"""


def _card(result: TrainResult, measured: Sequence[Measured]) -> str:
    recipe = result.recipe
    lines = (
        f"| {m.task} | {m.block_length} | {m.accuracy:.1%} | {m.all_steps:.1%} | {m.blocks_mean} ({m.blocks_max}) "
        f"| {m.steps_mean} ({m.steps_cv}) |"
        for m in measured
    )
    return CARD.format(
        name=recipe.name,
        parameters=sum(p.numel() for p in result.model.parameters()),
        layers=recipe.num_layers,
        width=recipe.hidden_size,
        heads=recipe.num_heads,
        vocabulary=recipe.vocab_size,
        context=recipe.max_positions,
        tasks=", ".join(recipe.tasks),
        seed=recipe.seed,
        steps=result.steps,
        planned=recipe.steps,
        rows=recipe.batch_rows,
        minutes=result.minutes,
        held_out=result.held_out,
        problems=measured[0].problems,
        measure_seed=SEED,
        scaled=SCALED.format(scale=recipe.head_scale) if recipe.head_scale != 1.0 else "",
        table="\n".join(lines),
    )
