"""Known models and devices by name, and what was calibrated for them on the paper's published runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blockserve.core import check_choice
from blockserve.simulation.cost import Device, ModelShape, Roofline
from blockserve.simulation.profile import StepDistribution

SHAPES: Mapping[str, ModelShape] = {
    "llada-8b": ModelShape("LLaDA-8B", 32, 4096, 32, 32, 12288, 126464),
    "dream-7b": ModelShape("Dream-7B", 28, 3584, 28, 4, 18944, 152064),
}
# Dense bf16 FLOP/s and bytes/s as measured, not as on the data sheet.
DEVICES: Mapping[str, Device] = {"h200": Device("H200", 790e12, 4.3e12, 141e9)}
CALIBRATED_LENGTH = 32  # block length the steps were calibrated at


@dataclass(frozen=True)
class Calibration:
    """Four numbers of a served model: ``steps`` a block of 32, ``efficiency`` of the device's peaks, and the seconds
    that a pass, and a row in a pass, take beside. Found by `blockserve.studies.calibration.fit_calibration`."""

    model: str
    steps: int
    efficiency: float
    pass_overhead: float
    row_overhead: float

    @property
    def cost(self) -> Roofline:
        """The roofline on the paper's device."""
        return roofline(
            self.model,
            efficiency=self.efficiency,
            pass_overhead=self.pass_overhead,
            row_overhead=self.row_overhead,
        )

    def steps_for(self, block_length: int) -> StepDistribution:
        """The same number of tokens a step at another block length."""
        return StepDistribution(max(1, round(self.steps * block_length / CALIBRATED_LENGTH)))


CALIBRATED: Mapping[str, Calibration] = {
    "llada-8b": Calibration("llada-8b", 12, 0.664, 0.02, 0.00183),
    "dream-7b": Calibration("dream-7b", 8, 0.354, 0.02, 0.00332),
}


def roofline(model: str = "llada-8b", device: str = "h200", **options: Any) -> Roofline:
    """The roofline of a known model on a known device, calibrated; ``options`` override `Roofline`'s numbers."""
    check_choice("model shape", model, SHAPES)
    check_choice("device", device, DEVICES)
    own = CALIBRATED[model]
    numbers = {
        "efficiency": own.efficiency,
        "pass_overhead": own.pass_overhead,
        "row_overhead": own.row_overhead,
    }
    return Roofline(SHAPES[model], DEVICES[device], **(numbers | options))
