"""Runs without a model: what requests would do (profile), what passes would take (cost), and an executor of both."""
