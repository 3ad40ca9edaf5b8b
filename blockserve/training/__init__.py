"""Recipes and the training loop of the small models: ``export(train(get_recipe(name), folder), checkpoint)``."""

from blockserve.training.export import export
from blockserve.training.loop import TrainResult, train
from blockserve.training.recipes import RECIPES, Recipe, get_recipe

__all__ = ["RECIPES", "Recipe", "TrainResult", "export", "get_recipe", "train"]
