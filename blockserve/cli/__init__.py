"""The ``blockserve`` command. Tables for people; the last line of standard output is one JSON object.

A mistake ends in one line on standard error and exit code 2.
"""

from blockserve.cli import apps, evaluate, invariance, models, policies, race, reports, run, simulate  # noqa: F401  (each registers its commands)
from blockserve.cli.app import app, main

__all__ = ["app", "main"]
