"""Recipes and the training loop of the small models: ``export(train(get_recipe(name), folder), checkpoint)``."""

from blockserve.training.export import Measured, export, measure
from blockserve.training.loop import TrainResult, train
from blockserve.training.recipes import RECIPES, Recipe, get_recipe

__all__ = ["RECIPES", "Measured", "Recipe", "TrainResult", "export", "get_recipe", "measure", "train"]
