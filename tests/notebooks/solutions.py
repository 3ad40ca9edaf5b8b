"""A solution of every exercise of the teaching notebooks: what a reader would put in place of ``answer = ...``."""

from __future__ import annotations

SOLUTIONS = {
    ("01", 1): "answer = [0, 2, 4]",
    ("01", 2): "answer = [4, 3, 3, 3, 3]",
    ("01", 3): "answer = 0.7",
    ("02", 1): "answer = 17",
    ("02", 2): "answer = [5, 4, 3, 2, 2, 1, 1, 1]",
    ("02", 3): "answer = 9",
    ("03", 1): "answer = 128",
    ("03", 2): "answer = [2, 3, 4]",
    ("03", 3): "answer = [3, 1, 3, 1, 3, 1]",
    ("04", 1): "answer = 219",
    ("04", 2): "answer = [1, 3, 4, 5]",
    ("04", 3): "answer = [4, 3]",
    ("05", 1): """
def answer(request):
    return (request.blocks - request.block, request.prompt_tokens)
""",
    ("05", 2): """
def answer(queue, box, bound):
    for request in queue:
        if bound.admits(request):
            yield request
""",
    ("05", 3): 'answer = {"order": "shortest_first", "fill": "sand"}',
}

# A likely wrong answer of each, and a word of what the check says to it.
MISTAKES = {
    ("01", 1): ("answer = [0, 2, 3, 4]", "0.88"),
    ("01", 2): ("answer = [3, 3, 3, 3, 4]", "first steps"),
    ("01", 3): ("answer = 0.9", "4 passes"),
    ("02", 1): ("answer = 10", "more"),
    ("02", 2): ("answer = [1, 5, 2, 2, 4, 1, 1, 3]", "17 row-cycles are idle; 9"),
    ("02", 3): ("answer = 7", "slowest"),
    ("03", 1): ("answer = 112", "request 4 has to leave again in cycle 1"),
    ("03", 2): ("answer = [2, 3, 4, 5]", "3 × 18 = 54"),
    ("03", 3): ("answer = [2, 2, 2, 2, 2, 2]", "a gain of 0"),
    ("04", 1): ("answer = 171", "as wide as the widest"),
    ("04", 2): ("answer = [1, 2]", "head_of_line"),
    ("04", 3): ("answer = [3, 4]", "order in which it happens"),
    ("05", 1): ("answer = lambda request: request.blocks", "goes first"),
    ("05", 2): ("from blockserve.scheduling.admission import head_of_line as answer", "stays in the queue"),
    ("05", 3): ('answer = {"order": "longest_first"}', "On average"),
}
