"""Bytes and frames. Nothing in this package knows what an LLM is."""
