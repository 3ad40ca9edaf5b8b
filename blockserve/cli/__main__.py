"""``python -m blockserve.cli``: the same as the ``blockserve`` command."""

from blockserve.cli import main

main()
