"""Charts of one trace or of several: functions that return a plotly ``Figure``, with titles, units and hover.

Each takes a trace, or a mapping from a name to a trace, which are then compared. A name has the same colour in every
chart that is given the same mapping; what a colour means for cells of the batch it also means here (`colours.py`).
Times that were predicted and not measured are marked so in the title.

==============================  ======================================================================
`batch_over_time`, `capacity`   rows and box over time; the box against the budget, and how many rows are held (RQ4)
`gantt`, `steps_heatmap`        every request, block by block: when, and in how many steps
`commits_heatmap`               one block of one request: what each denoise step fixed, and how surely
`waste_bars`, `ladder`          where the work went; one change a rung
`rungs`                         what every rung is worth, to many workloads at once (RQ1)
`latency_by_length`             latency against output length, a point a request
`latency_violins`               the same as distributions (RQ2)
`scaling`                       throughput and latency against the batch size (RQ3)
`block_lengths`, `orders`       ablations of block length and of sorting (RQ5)
`accuracy`                      quality against tokens a forward, by each setting of decoding
`arrival_rates`                 goodput and p99 against the arrival rate (online)
`predicted_against_measured`    a study of the paper's rows, or two traces of the same requests
==============================  ======================================================================
"""

from blockserve_viz.charts.commits import commits_heatmap
from blockserve_viz.charts.latency import latency_by_length, latency_violins
from blockserve_viz.charts.online import arrival_rates
from blockserve_viz.charts.over_time import batch_over_time, capacity
from blockserve_viz.charts.prediction import predicted_against_measured
from blockserve_viz.charts.quality import accuracy
from blockserve_viz.charts.requests import gantt, steps_heatmap
from blockserve_viz.charts.rungs import rungs
from blockserve_viz.charts.studies import block_lengths, ladder, orders, scaling
from blockserve_viz.charts.work import waste_bars

__all__ = [
    "accuracy",
    "arrival_rates",
    "batch_over_time",
    "block_lengths",
    "capacity",
    "commits_heatmap",
    "gantt",
    "ladder",
    "latency_by_length",
    "latency_violins",
    "orders",
    "predicted_against_measured",
    "rungs",
    "scaling",
    "steps_heatmap",
    "waste_bars",
]
