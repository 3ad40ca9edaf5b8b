"""From a name or a folder to a model that can decode: real key names, real config fields, no remote code."""

from blockserve.checkpoints.hub import load_model, model_table

__all__ = ["load_model", "model_table"]
