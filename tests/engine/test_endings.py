"""How requests end, on a model that writes what it is told: end tokens anywhere, floods, none, two kinds, limits.

The stand-in answers each position with a scripted token at a scripted confidence, so the expected output can be read
off the script.
"""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from blockserve import Engine, Request
from blockserve.execution.model import DiffusionModel

MASK, END, TURN_END, VOCABULARY = 9, 8, 7, 10
LENGTH, PROMPT = 4, (1, 2, 3)


class Scripted:
    """Position ``p`` → token ``script[p - 3]`` with a logit of 20, or of 2 for positions in ``slow``."""

    def __init__(self, script, slow=()):
        self.script, self.slow = script, set(slow)
        self.config = SimpleNamespace(vocab_size=VOCABULARY, shifted=False, num_layers=0, hidden_size=1)
        self.embed = SimpleNamespace(weight=torch.zeros(1))

    def __call__(self, ids, positions, visible, cache):
        return positions[..., None].float()

    def head(self, hidden):
        places = hidden[..., 0].long() - len(PROMPT)
        logits = torch.zeros(*places.shape, VOCABULARY)
        for place in range(len(self.script)):
            logits[places == place, self.script[place]] = 2.0 if place in self.slow else 20.0
        return logits


def run(script, *, slow=(), limit=None, eos="settled", prompt=PROMPT):
    network = Scripted(script, slow)
    model = DiffusionModel("scripted", network, None, MASK, (END, TURN_END), END, 64, (MASK,))
    cache = {"cache": "none"}  # the stand-in keeps no keys
    engine = Engine(model, "blockserve-fixed", block_length=LENGTH, eos=eos, check=True, **cache)
    done = engine.run([Request("a", prompt_ids=prompt, max_new_tokens=limit or len(script))])
    return done.completions[0], done.trace


@pytest.mark.parametrize("eos", ["settled", "block", "ignore"])
@pytest.mark.parametrize(
    ("script", "valid", "blocks"),
    [
        ([1, 1, 1, 1, 2, END, 3, 3, 4, 4, 4, 4], 5, 2),  # in the middle of the second block
        ([END, 1, 1, 1, 1, 1, 1, 1], 0, 1),  # the very first token
        ([1, 1, 1, 1, END, END, END, END, 1, 1, 1, 1], 4, 2),  # a block of only end tokens
        ([1, 2, TURN_END, 1, 1, 1, 1, 1], 2, 1),  # the other end token
        ([1, 2, TURN_END, END, 1, 1, 1, 1], 2, 1),  # both: the first counts
        ([1, 1, 1, 1, 2, 2, 2, 2], None, 2),  # none
    ],
)
def test_the_first_end_token_ends_the_valid_output(script, valid, blocks, eos):
    done, _ = run(script, eos=eos)
    expected = len(script) if valid is None else valid
    assert done.valid_tokens == expected
    assert list(done.output_ids[:expected]) == script[:expected]
    assert done.reason == ("length" if valid is None or eos == "ignore" else "eos")
    assert done.blocks == (len(script) // LENGTH if eos == "ignore" else blocks)


def test_an_end_token_in_the_prompt_ends_nothing():
    done, _ = run([1, 1, 1, 1, 2, 2, 2, 2], prompt=(1, END, 3))
    assert (done.reason, done.valid_tokens) == ("length", 8)


def test_an_end_token_beyond_the_limit_does_not_count():
    """Limit 6 of a canvas of 8: the end token at offset 6 is outside."""
    done, _ = run([1, 1, 1, 1, 2, 2, END, 2], limit=6)
    assert (done.reason, done.valid_tokens, len(done.output_ids)) == ("length", 6, 6)


def test_an_end_token_behind_a_mask_is_not_settled():
    """Offset 1 is unsure and is fixed later than the end token at 2: the block goes on until it is."""
    done, trace = run([1, 1, END, 5, 1, 1, 1, 1], slow=(1, 3))
    assert (done.reason, done.valid_tokens) == ("eos", 2)
    row = trace.cycle_records[0].rows[0]
    assert row.commits == (2, 1), "offset 3, behind the end, is never needed"
    assert row.valid == (1, 1)
    whole, trace = run([1, 1, END, 5, 1, 1, 1, 1], slow=(1, 3), eos="block")
    assert sum(trace.cycle_records[0].rows[0].commits) == LENGTH
    assert whole.valid_tokens == 2
