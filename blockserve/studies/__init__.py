"""What the command line and the notebooks share: simulate, replay, diff, bounds, and the study of the paper."""
