"""Recipes: everything that decides the weights of a small model."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, Literal

from blockserve.core import ConfigError, check_choice, check_int, check_number, unknown_name
from blockserve.execution.model import ModelConfig
from blockserve.workload.tasks import TASKS


@dataclass(frozen=True)
class Recipe:
    """Shape of the model, what it learns from, and how.

    ``task_odds``: how often a row is of each task. ``architecture`` ``dream`` has biases on q, k and v, and predicts
    shifted by one. ``free_share`` of a batch's rows have masks anywhere in the answer so far, the others follow the
    engine's block cycle (see `training.data`); ``by_kind_share`` of the free ones hide every occurrence of a token.
    ``suffix_odds``: how often a row shows no, one, or every remaining masked block after the active one.
    ``head_scale`` multiplies the head's weights on export: below 1 it leaves every most likely token as it is and
    spreads the confidences, so that under a threshold a block takes more steps, as blocks of large models do.
    ``micro_rows``: rows of one forward, alike in width; their gradients add up to the batch's.
    """

    name: str
    tasks: tuple[str, ...]
    task_odds: tuple[float, ...]
    architecture: Literal["llada", "dream"] = "llada"
    seed: int = 0
    # model
    vocab_size: int = 1024
    hidden_size: int = 128
    num_layers: int = 4
    num_heads: int = 4
    num_kv_heads: int = 4
    intermediate_size: int = 384
    max_positions: int = 512
    rope_theta: float = 10_000.0
    rms_norm_eps: float = 1e-5
    # rows
    block_lengths: tuple[int, ...] = (8, 16, 32)
    block_odds: tuple[float, ...] = (0.25, 0.5, 0.25)
    suffix_odds: tuple[float, float, float] = (0.7, 0.15, 0.15)
    free_share: float = 0.6
    fully_masked: float = 0.1
    after_end: float = 0.05
    by_kind_share: float = 0.5
    # optimisation
    steps: int = 11_000
    batch_rows: int = 32
    micro_rows: int = 8
    learning_rate: float = 2e-3
    warmup_steps: int = 150
    weight_decay: float = 0.02
    clip_norm: float = 1.0
    tokenizer_problems: int = 10_000
    # export
    head_scale: float = 1.0

    def __post_init__(self) -> None:
        check_choice("architecture", self.architecture, ("llada", "dream"))
        for task in self.tasks:
            if task not in TASKS:
                raise unknown_name("task", task, TASKS)
        for name in ("steps", "batch_rows", "micro_rows", "tokenizer_problems"):
            check_int(name, getattr(self, name), 1)
        for name in ("learning_rate", "head_scale"):
            check_number(name, getattr(self, name), 0.0, open_low=True)
        for name in ("free_share", "fully_masked", "after_end", "by_kind_share"):
            check_number(name, getattr(self, name), 0.0, 1.0)
        for of, odds in (("tasks", "task_odds"), ("block_lengths", "block_odds")):
            if len(getattr(self, of)) != len(getattr(self, odds)):
                raise ConfigError(f"{of} and {odds} differ in length: {getattr(self, of)}, {getattr(self, odds)}")

    def model_config(self) -> ModelConfig:
        """The shape as the engine's model takes it."""
        return ModelConfig(
            vocab_size=self.vocab_size,
            hidden_size=self.hidden_size,
            num_layers=self.num_layers,
            num_heads=self.num_heads,
            num_kv_heads=self.num_kv_heads,
            intermediate_size=self.intermediate_size,
            head_dim=self.hidden_size // self.num_heads,
            rope_theta=self.rope_theta,
            rms_norm_eps=self.rms_norm_eps,
            max_positions=self.max_positions,
            qkv_bias=self.architecture == "dream",
            shifted=self.architecture == "dream",
        )

    def to_dict(self) -> dict[str, Any]:
        """JSON-able form, written beside the weights and compared when a run is resumed."""
        return {k: list(v) if isinstance(v, tuple) else v for k, v in dataclasses.asdict(self).items()}


FAMILIES = ("arithmetic", "code", "program", "algebra", "facts")
ODDS = (0.28, 0.13, 0.16, 0.28, 0.15)

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(name="tiny-llada", tasks=FAMILIES, task_odds=ODDS, head_scale=0.4),
        Recipe(name="tiny-dream", tasks=FAMILIES, task_odds=ODDS, head_scale=0.4, architecture="dream", num_kv_heads=2),
    )
}


def get_recipe(name: str) -> Recipe:
    """The recipe of that name."""
    if name not in RECIPES:
        raise unknown_name("recipe", name, RECIPES)
    return RECIPES[name]
