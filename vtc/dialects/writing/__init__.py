"""Calls, results and histories -> text, and the proof that the text reads back."""
