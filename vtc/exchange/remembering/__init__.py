"""Data between exchanges, and past messages: conversations, their reasoning and last prompts, and calls in results."""
