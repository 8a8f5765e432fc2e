"""Clients that document tools in their prompt and read calls out of the text."""
