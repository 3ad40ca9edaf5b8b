"""BlockServe: block-grained continuous batching for diffusion language models. Run it, see it, measure it.

Names are loaded on first use, so that looking at a trace needs no torch.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_EXPORTS = {
    "blockserve.core": (
        "BlockServeError",
        "DecodeConfig",
        "ExecConfig",
        "Factor",
        "Quota",
        "Request",
        "Threshold",
    ),
    "blockserve.engine": ("Engine", "Run"),
    "blockserve.checkpoints": ("load_model",),
    "blockserve.presets": ("PRESETS",),
    "blockserve.scheduling": ("FixedSlots", "SchedulingPolicy", "TokenBudget", "register_fill", "register_order"),
    "blockserve.studies.exercises": ("check_exercise",),
    "blockserve.studies.figure1": ("figure1",),
    "blockserve.studies.samples": ("sample_trace",),
    "blockserve.studies.scripts": ("Script", "serve_scripts"),
    "blockserve.tracing": ("Trace",),
    "blockserve.tracing.metrics": (
        "compare",
        "effective_compute_ratio",
        "goodput",
        "latency",
        "latency_quantiles",
        "summarize",
        "waste",
    ),
    "blockserve.workload.sources": ("Workload",),
}
_HOME = {name: module for module, names in _EXPORTS.items() for name in names}
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}; it has: {', '.join(__all__)}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return [*globals(), *__all__]
