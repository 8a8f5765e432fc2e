"""Benchmark of a model's tool calls through VTC: an agent's loop with real effects in a temporary folder."""
