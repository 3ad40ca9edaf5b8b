"""The shared nouns' own help: what is suggested for a name that nobody knows."""

from __future__ import annotations

import pytest

from blockserve.core import nearest, unknown_name

PARAMETERS = ("model", "n", "seed", "slots", "tasks", "token_budget")
NOTEBOOKS = ("00_tour", "10_rq1_throughput_quality", "11_rq2_latency_by_length")
PRESETS = ("fast-dllm-static", "static", "static-eos", "vanilla")


@pytest.mark.parametrize(
    ("name", "known", "meant"),
    [
        ("bugdet", PARAMETERS, "token_budget"),
        ("sede", PARAMETERS, "seed"),
        ("10_rq", NOTEBOOKS, "10_rq1_throughput_quality"),
        ("latncy", NOTEBOOKS, "11_rq2_latency_by_length"),
        ("eos", PRESETS, "static-eos"),
        ("statik", PRESETS, "static"),
        ("stati", PRESETS, "static"),
        ("colour", PARAMETERS, None),
        ("", PARAMETERS, None),
        ("anything", (), None),
    ],
)
def test_the_nearest_name(name, known, meant):
    assert nearest(name, known) == meant


def test_the_message_suggests_and_lists():
    error = unknown_name("parameter", "bugdet", PARAMETERS)
    assert str(error).startswith("unknown parameter 'bugdet'. Did you mean 'token_budget'? Known: model, n, seed")
    many = str(unknown_name("request", "x", (f"request-{i:03}" for i in range(100))))
    assert many.endswith("… (100 in all)") and "Did you mean" not in many
