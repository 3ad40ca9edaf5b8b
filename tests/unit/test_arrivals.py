"""Arrival processes keep their stated rate and CV; length traces are read in the public formats, faults are named."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from blockserve.core import ConfigError, InvalidRequestError, UnknownNameError
from blockserve.workload.arrivals import Bursts, ClosedLoop, Gamma, Poisson, Uniform, parse_arrivals
from blockserve.workload.lengths import read_lengths

N = 100_000


def gaps(process):
    return np.diff(process.times(N, seed=11), prepend=0.0)


@pytest.mark.parametrize("rate", [0.02, 3.0, 700.0])
@pytest.mark.parametrize(
    ("make", "cv"), [(Poisson, 1.0), (Uniform, 0.0), (lambda r: Gamma(r, 0.5), 0.5), (lambda r: Gamma(r, 2.0), 2.0)]
)
def test_the_rate_and_the_cv_are_the_stated_ones(make, cv, rate):
    g = gaps(make(rate))
    tolerance = 0.01 if cv <= 1 else 0.02  # the standard error of the mean is cv / √n = 0.6% at CV 2
    assert g.mean() == pytest.approx(1 / rate, rel=tolerance)
    assert g.std() / g.mean() == pytest.approx(cv, abs=0.01 + 0.02 * cv)
    assert (g >= 0).all()


def test_no_gap_is_clipped():
    """An exponential has 0.674% of its gaps above five means and 4.54e-5 above ten."""
    g = gaps(Poisson(1.0))
    assert (g > 5).mean() == pytest.approx(np.exp(-5), rel=0.15)
    assert (g > 9).any()


def test_bursts_come_together_at_the_stated_mean_rate():
    times = Bursts(5.0, size=8).times(N, seed=3)
    assert (times.reshape(-1, 8) == times.reshape(-1, 8)[:, :1]).all()
    assert N / times[-1] == pytest.approx(5.0, rel=0.02)
    assert len(Bursts(5.0, size=8).times(13)) == 13


def test_seeds_repeat():
    assert (Poisson(3.0).times(9, seed=4) == Poisson(3.0).times(9, seed=4)).all()
    assert (Poisson(3.0).times(9, seed=4) != Poisson(3.0).times(9, seed=5)).any()


def test_arrivals_as_text():
    assert parse_arrivals("poisson:3") == Poisson(3.0)
    assert parse_arrivals("gamma:3,cv=0.5") == Gamma(3.0, 0.5)
    assert parse_arrivals("bursts:rate=2,size=4") == Bursts(2.0, 4)
    assert parse_arrivals("closed:4,think=0.5") == ClosedLoop(4, 0.5)
    for text, error, match in (
        ("poison:3", UnknownNameError, "Did you mean 'poisson'"),
        ("poisson:fast", ConfigError, "rate must be a number, got 'fast'"),
        ("poisson:0", ConfigError, "rate must be in"),
        ("gamma:3,4", ConfigError, "'4' is not understood"),
        ("closed:0", ConfigError, "clients must be a whole number of at least 1"),
    ):
        with pytest.raises(error, match=match):
            parse_arrivals(text)


PLAIN = "arrival_s,prompt_tokens,output_tokens\n5.0,10,3\n5.5,20,4\n7.0,30,5\n"
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,10,3\n"
    "2023-11-16 18:15:47.1805900,20,4\n2023-11-16 18:15:48.6805900,30,5\n"
)
MOONCAKE = "".join(
    json.dumps({"timestamp": t, "input_length": p, "output_length": o, "hash_ids": [1, 2]}) + "\n"
    for t, p, o in ((27000, 10, 3), (27500, 20, 4), (29000, 30, 5))
)
SERVEGEN = "timestamp,input_tokens,output_tokens\n1,10,3\n1.5,20,4\n3,30,5\n"


@pytest.mark.parametrize(
    ("name", "text"),
    [("plain.csv", PLAIN), ("azure.csv", AZURE), ("mooncake.jsonl", MOONCAKE), ("servegen.csv", SERVEGEN)],
)
def test_public_formats_give_the_same_lengths(name, text, tmp_path):
    (tmp_path / name).write_text(text)
    found = read_lengths(tmp_path / name)
    assert found.arrival == pytest.approx([0.0, 0.5, 2.0], abs=1e-6)
    assert found.prompt_tokens.tolist() == [10, 20, 30]
    assert found.output_tokens.tolist() == [3, 4, 5]
    assert found.rate == pytest.approx(1.0)


def test_windows_rates_and_limits(tmp_path):
    (tmp_path / "t.csv").write_text(PLAIN)
    lengths = read_lengths(tmp_path / "t.csv")
    assert lengths.window(0.4, 3.0).arrival.tolist() == [0.0, 1.5]
    assert lengths.at_rate(4.0).arrival.tolist() == [0.0, 0.125, 0.5]
    assert lengths.at_most(prompt_tokens=20, output_tokens=3).output_tokens.tolist() == [3, 3]
    assert len(lengths.first(2)) == 2
    with pytest.raises(ConfigError, match="no request is left in 50-60 s"):
        lengths.window(50, 60)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("arrival_s,prompt_tokens\n0,3\n", "columns arrival_s, prompt_tokens miss what is needed"),
        ("arrival_s,prompt_tokens,output_tokens\n-1,3,3\n", "line 2: arrival_s .* is negative"),
        ("arrival_s,prompt_tokens,output_tokens\n2,3,3\n1,3,3\n", "line 3: arrival_s .* earlier than the line before"),
        (
            "arrival_s,prompt_tokens,output_tokens\n0,0,3\n",
            "line 2: prompt_tokens must be a whole number of at least 1",
        ),
        ("arrival_s,prompt_tokens,output_tokens\n0,many,3\n", "line 2: prompt_tokens .* got 'many'"),
        ("arrival_s,prompt_tokens,output_tokens\nnan,3,3\n", "line 2: arrival_s .* is no time"),
        ("arrival_s,prompt_tokens,output_tokens\n", "holds no requests"),
        ("", "cannot be read"),
    ],
)
def test_faults_name_the_line(text, match, tmp_path):
    (tmp_path / "t.csv").write_text(text)
    with pytest.raises(InvalidRequestError, match=match):
        read_lengths(tmp_path / "t.csv")


@pytest.mark.skipif("BLOCKSERVE_DATA" not in os.environ, reason="BLOCKSERVE_DATA names no folder of real traces")
def test_real_traces_load():
    for path in sorted((Path(os.environ["BLOCKSERVE_DATA"]) / "traces").glob("*.csv")):
        lengths = read_lengths(path)
        assert len(lengths) > 1000
        assert (np.diff(lengths.arrival) >= 0).all()
