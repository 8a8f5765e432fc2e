"""The words by which servers say why a reply ended.

Each API lists its own words; servers also use those of other APIs and of their engines. Only listed words count: any
other word denotes a fault of the server.
"""

from __future__ import annotations

from collections.abc import Mapping

from vtc.events import Reason

SYNONYMS: Mapping[str, Reason] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "end", "eos", "eos_token", "complete", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_length", "max_output_tokens", "model_length"), "length"),
    "model_context_window_exceeded": "length",
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "sensitive"), "halted"),
    "function_call": "other",
}
"""Words that servers of any API use, in lower case."""


def reason_of(word: str, own: Mapping[str, Reason]) -> Reason:
    """Map the word of a server to a reason; `own` are the words of its API."""
    return own.get(word) or SYNONYMS.get(word.lower(), "failed")
