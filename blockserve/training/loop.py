"""The training loop: masked diffusion on prompt → answer pairs, resumable."""

from __future__ import annotations

import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import tqdm

from blockserve.core import ConfigError, check_int
from blockserve.execution.model import BidirectionalTransformer
from blockserve.training.data import MicroBatch, RowSource
from blockserve.training.recipes import Recipe, get_recipe
from blockserve.training.tokenizer import build_tokenizer
from blockserve.training.warm import warm_start
from blockserve.workload.problems import problems
from blockserve.workload.tasks import TASKS

CHECKPOINT, TOKENIZER, LOG = "checkpoint.pt", "tokenizer.json", "log.jsonl"
SAVE_SECONDS = 120.0
LOG_STEPS, HELD_OUT_STEPS, HELD_OUT_BATCHES = 50, 250, 4


@dataclass(frozen=True)
class TrainResult:
    """A trained (or partly trained) model. ``minutes``: time in the loop over all resumed parts."""

    model: BidirectionalTransformer
    tokenizer: Tokenizer
    recipe: Recipe
    steps: int
    minutes: float
    held_out: float | None


class CycleCache:
    """KV of one block cycle: the refresh pass fills it, the reuse pass replaces ``columns`` [rows, L].

    Unlike the engine's cache it keeps the graph, so that the reuse pass also trains the keys it reads.
    """

    def __init__(self, columns: Tensor) -> None:
        self.columns = columns
        self.kept: dict[int, tuple[Tensor, Tensor]] = {}

    def update(self, layer: int, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values [rows, heads, width, head_dim] to attend to."""
        if layer not in self.kept:
            self.kept[layer] = key, value
            return key, value
        index = self.columns[:, None, :, None].expand(-1, key.shape[1], -1, key.shape[3])
        return tuple(old.scatter(2, index, new) for old, new in zip(self.kept[layer], (key, value), strict=True))


def masked_logits(model: BidirectionalTransformer, batch: MicroBatch) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(logits [n, vocabulary], targets [n], weights [n]) at the masked positions of each pass of ``batch``."""
    reuse = batch.reuse
    cache = None if reuse is None else CycleCache(reuse.columns)
    shift = int(model.config.shifted)  # the first column is never masked, so what `roll` brings round has no weight
    passes = [(model(batch.ids, batch.positions, batch.visible, cache), batch.targets, batch.weight)]
    if reuse is not None:
        at = batch.positions.gather(1, reuse.columns)
        passes.append((model(reuse.ids, at, batch.visible, cache), reuse.targets, reuse.weight))
    return [(model.head(hidden.roll(shift, 1)[w > 0]), targets[w > 0], w[w > 0]) for hidden, targets, w in passes]


def initial_model(recipe: Recipe) -> BidirectionalTransformer:
    """The model before its first step: a function of the recipe's seed alone."""
    with torch.device("meta"):  # the modules' own initialisation would draw from global random state
        model = BidirectionalTransformer(recipe.model_config())
    model.to_empty(device="cpu")
    generator = torch.Generator().manual_seed(recipe.seed)
    depth = math.sqrt(2 * recipe.num_layers)
    for name, weight in model.named_parameters():
        if weight.dim() == 2:
            std = 0.1 if name.startswith("embed") else 0.6 / math.sqrt(weight.shape[1])
            residual = name.endswith(("o_proj.weight", "down_proj.weight"))
            nn.init.normal_(weight, std=std / depth if residual else std, generator=generator)
        else:
            nn.init.constant_(weight, 0.0 if name.endswith("bias") else 1.0)
    return model


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up, then a cosine to zero at the recipe's last step; times the rate of the phase."""
    warm = min(1.0, (step + 1) / max(1, recipe.warmup_steps))
    peak = recipe.phase(step).rate * recipe.learning_rate
    return peak * warm * 0.5 * (1 + math.cos(math.pi * step / recipe.steps))


def train(recipe: Recipe, folder: str | Path, *, resume: bool = True, max_steps: int | None = None) -> TrainResult:
    """Train ``recipe`` in ``folder`` and return the model; every two minutes the state is saved there.

    ``resume`` goes on from a saved state (which must be of the same recipe); otherwise the run starts anew and
    replaces what was there. ``max_steps`` stops early, after that many steps in all, with the state saved.
    A recipe with a base trains that first, in ``folder/base``. An interrupt saves the state too. Raises `ConfigError`
    when the saved state is of another recipe.
    """
    if max_steps is not None:
        check_int("max_steps", max_steps, 1)
    run = _Run(recipe, Path(folder), resume)
    last = recipe.steps if max_steps is None else min(max_steps, recipe.steps)
    try:
        run.advance(last)
    finally:
        run.save()
    return TrainResult(run.model.eval(), run.tokenizer, recipe, run.step, run.seconds / 60, run.held_out_accuracy())


class _Run:
    """The state of one run: everything that a saved file restores."""

    def __init__(self, recipe: Recipe, folder: Path, resume: bool) -> None:
        self.recipe, self.folder, self.step, self.seconds = recipe, folder, 0, 0.0
        folder.mkdir(parents=True, exist_ok=True)
        self.model = initial_model(recipe)
        matrices = [p for p in self.model.parameters() if p.dim() == 2]
        vectors = [p for p in self.model.parameters() if p.dim() != 2]
        groups = [{"params": matrices, "weight_decay": recipe.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=recipe.learning_rate, betas=(0.9, 0.98))
        if resume and (folder / CHECKPOINT).exists():
            self._restore()
        else:
            (folder / LOG).write_text("")
            self.tokenizer = build_tokenizer(_texts(recipe), recipe.vocab_size)
            self.tokenizer.save(str(folder / TOKENIZER))
            if recipe.base is not None:
                first = train(get_recipe(recipe.base), folder / "base", resume=resume)
                warm_start(self.model, self.tokenizer, first.model, first.tokenizer)
                self.seconds = 60 * first.minutes
        self.source = RowSource(recipe, self.tokenizer)
        held_out = RowSource(recipe, self.tokenizer, split="test")  # batches of the last phase, all tasks
        self.held_out = [micro for i in range(HELD_OUT_BATCHES) for micro in held_out.batch(recipe.steps + i)]

    def advance(self, last: int) -> None:
        """Train up to step ``last``."""
        losses: list[float] = []
        saved = time.monotonic()
        with tqdm(total=last, initial=self.step, desc=f"train {self.recipe.name}", unit="step", mininterval=5) as bar:
            while self.step < last:
                began = time.monotonic()
                losses.append(self._train_step())
                self.seconds += time.monotonic() - began
                if self.step % LOG_STEPS == 0 or self.step == last:
                    self._log(sum(losses) / len(losses))
                    bar.set_postfix(loss=f"{sum(losses) / len(losses):.3f}", refresh=False)
                    losses.clear()
                if time.monotonic() - saved > SAVE_SECONDS:
                    self.save()
                    saved = time.monotonic()
                bar.update()

    def _train_step(self) -> float:
        """One optimiser step; returns the batch's weighted mean loss in nats."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step)
        total = 0.0
        for micro in self.source.batch(self.step):
            parts = [
                (F.cross_entropy(logits, targets, reduction="none") * weight).sum()
                for logits, targets, weight in masked_logits(self.model, micro)
            ]
            loss = torch.stack(parts).sum()
            loss.backward()
            total += loss.item()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return total

    @torch.inference_mode()
    def held_out_accuracy(self) -> float:
        """Share of masked tokens of held-out rows whose most likely token is right."""
        self.model.eval()
        right = seen = 0
        for micro in self.held_out:
            for logits, targets, _ in masked_logits(self.model, micro):
                right += int((logits.argmax(-1) == targets).sum())
                seen += len(targets)
        return right / seen

    def _log(self, loss: float) -> None:
        line: dict[str, Any] = {"step": self.step, "loss": round(loss, 5), "seconds": round(self.seconds, 1)}
        line["learning_rate"] = learning_rate(self.recipe, self.step)
        if self.step % HELD_OUT_STEPS == 0 or self.step == self.recipe.steps:
            line["held_out_accuracy"] = round(self.held_out_accuracy(), 5)
        with (self.folder / LOG).open("a") as file:
            file.write(json.dumps(line) + "\n")

    def save(self) -> None:
        """Write the state beside the old one and swap them, so that a kill leaves one of the two whole."""
        state = {
            "recipe": json.dumps(self.recipe.to_dict()),
            "step": self.step,
            "seconds": self.seconds,
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
        }
        partial = self.folder / (CHECKPOINT + ".partial")
        torch.save(state, partial)
        os.replace(partial, self.folder / CHECKPOINT)

    def _restore(self) -> None:
        path = self.folder / CHECKPOINT
        state = torch.load(path, weights_only=True)
        saved, mine = json.loads(state["recipe"]), self.recipe.to_dict()
        changed = [f"{key} {saved.get(key)!r} → {mine[key]!r}" for key in mine if saved.get(key) != mine[key]]
        if changed:
            raise ConfigError(
                f"{path} is of another recipe ({'; '.join(changed)}); "
                "train in another folder, or start anew without resume"
            )
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.seconds = state["step"], state["seconds"]
        self.tokenizer = Tokenizer.from_file(str(self.folder / TOKENIZER))
        log = (self.folder / LOG).read_text().splitlines(keepends=True)  # a killed run logged steps it never saved
        (self.folder / LOG).write_text("".join(line for line in log if json.loads(line)["step"] <= self.step))


def _texts(recipe: Recipe) -> list[str]:
    """What the tokenizer learns from: training problems of every task."""
    shares = zip(recipe.tasks, recipe.tokenizer_problems, strict=True)
    drawn = (p for name, n in shares for p in problems(TASKS[name], n, recipe.seed, "train"))
    return [p.prompt + p.answer for p in drawn]
