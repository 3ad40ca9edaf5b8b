"""The queue that a million requests wait in: its indexes against a plain list, and its cost by counting."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from blockserve.core import RequestShape
from blockserve.geometry import Geometry
from blockserve.scheduling.queue import ORDERS, RequestQueue, Waiting

GEOMETRY = Geometry(4)
PROMPTS = st.integers(1, 40) | st.sampled_from([1019, 1020, 1021, 5000])  # across the sizes of the width index


def waiting(number: int, prompt: int, arrival: float) -> Waiting:
    return Waiting.of(GEOMETRY, RequestShape(str(number), prompt, 8, arrival), number, since=number % 3)


def in_order(order: str, present: list[Waiting]) -> list[str]:
    return [w.id for w in sorted(present, key=lambda w: (ORDERS[order](w), w.arrival, w.number))]


@settings(max_examples=200, deadline=None)
@given(
    order=st.sampled_from(["longest_first", "shortest_first", "fifo"]),
    prompts=st.lists(PROMPTS, min_size=1, max_size=30),
    leaving=st.lists(st.integers(0, 29)),
    width=st.integers(0, 60) | st.sampled_from([1022, 1023, 1024, 1025, 10_000]),
)
def test_the_queue_is_a_sorted_list_that_answers_faster(order, prompts, leaving, width):
    queue = RequestQueue(order)
    present = [waiting(i, prompt, float(i % 4)) for i, prompt in enumerate(prompts)]
    queue.add_all(present[::2])
    for request in present[1::2]:
        queue.add(request)
    for index in leaving:
        if index < len(present) and present[index].id in queue:
            queue.remove(present[index])
    present = [w for w in present if w.id in queue]

    assert [w.id for w in queue] == in_order(order, present)
    assert (queue.head and queue.head.id) == next(iter(in_order(order, present)), None)
    fitting = [w for w in present if w.width <= width]
    assert [w.id for w in queue.fitting(width)] == in_order(order, fitting)
    assert queue.count(width) == len(fitting)
    oldest = min(present, key=lambda w: (w.since, w.number), default=None)
    assert queue.oldest() is oldest


@given(
    prompts=st.lists(PROMPTS, min_size=1, max_size=30),
    kept=st.sets(st.integers(0, 29)),
    width=st.integers(0, 1100),
)
def test_requests_may_leave_while_one_walks_those_that_fit(prompts, kept, width):
    """As a fill does: some are taken as soon as they are yielded, others are passed over."""
    queue = RequestQueue("longest_first")
    present = [waiting(i, prompt, 0.0) for i, prompt in enumerate(prompts)]
    queue.add_all(present)
    seen = []
    for request in queue.fitting(width):
        seen.append(request.id)
        if request.number not in kept:
            queue.remove(request)
    assert seen == in_order("longest_first", [w for w in present if w.width <= width])
    assert len(queue) == sum(w.number in kept or w.width > width for w in present)


def test_taking_the_next_that_fits_compares_few_keys():
    """A thousand times more requests, at most four times more comparisons a request: logarithmic, not linear."""
    cost = {}
    for size in (64, 65_536):
        rng = np.random.default_rng(0)
        queue = RequestQueue("fifo")  # equal keys: every comparison comes down to the arrivals
        queue.add_all([waiting(i, p, Counted(0)) for i, p in enumerate(rng.integers(1, 2000, size).tolist())])
        Counted.compared = 0
        for taken, request in enumerate(queue.fitting(1000)):
            queue.remove(request)
            if taken == 20:
                break
        cost[size] = Counted.compared
    assert cost[64] > 0 and cost[65_536] <= 4 * cost[64]


class Counted(float):
    """An arrival time that counts how often it is compared."""

    compared = 0

    def __lt__(self, other):
        Counted.compared += 1
        return float(self) < float(other)

    def __eq__(self, other):
        Counted.compared += 1
        return float(self) == float(other)

    __hash__ = float.__hash__
