"""Data between exchanges: the last prompts, the reasoning of past turns, and the calls in tool results."""
