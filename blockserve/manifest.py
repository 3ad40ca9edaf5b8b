"""What a run was: the manifest written as the first record of its trace."""

from __future__ import annotations

import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

from blockserve.tracing.records import RunRecord

if TYPE_CHECKING:
    from blockserve.engine import Engine
    from blockserve.workload.sources import Workload

PACKAGES = ("blockserve", "torch", "numpy", "tokenizers", "safetensors", "transformers")


def versions() -> dict[str, str]:
    """Python and the packages that can change a result."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def run_record(engine: Engine, workload: Workload) -> RunRecord:
    """The manifest of ``workload`` on ``engine``."""
    model, shape = engine.model, engine.model.network.config
    return RunRecord(
        preset=engine.config.preset,
        **engine.config.to_dict(),
        model={
            "name": model.name,
            "context": model.context,
            "mask_id": model.mask_id,
            "end_ids": list(model.end_ids),
            "layers": shape.num_layers,
            "hidden_size": shape.hidden_size,
            "vocab_size": shape.vocab_size,
            "shifted": shape.shifted,
            "chat": model.chat,
        },
        device=str(model.device),
        dtype=str(model.dtype).removeprefix("torch."),
        clock=engine.clock,
        level=engine.trace_level,
        seed=engine.seed,
        workload={"name": workload.name, "requests": len(workload.requests), "digest": workload.digest()},
        versions=versions(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
