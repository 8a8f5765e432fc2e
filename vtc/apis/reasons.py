"""The finish reasons of all servers.

Each API lists its own words; servers also use words of other APIs and of their engines. A word that is on no list
denotes a fault of the server.
"""

from __future__ import annotations

from collections.abc import Mapping

from vtc.events import Reason

REASON_SYNONYMS: Mapping[str, Reason] = {
    **dict.fromkeys(("stop", "end_turn", "stop_sequence", "end", "eos", "eos_token", "complete", "completed"), "stop"),
    **dict.fromkeys(("length", "max_tokens", "max_length", "max_output_tokens", "model_length"), "length"),
    "model_context_window_exceeded": "length",
    **dict.fromkeys(("tool_calls", "tool_call", "tool_use"), "tool_calls"),
    **dict.fromkeys(("content_filter", "refusal", "safety", "sensitive"), "halted"),
    "function_call": "other",
}
"""Words that servers of any API use, in lower case."""


class ReasonTable(dict[str, Reason]):
    """Maps all words of an API's servers to reasons; an unlisted word is a fault."""

    def __init__(self, own: Mapping[str, Reason]) -> None:
        """Combine the words of other APIs with this API's own."""
        super().__init__({**REASON_SYNONYMS, **own})

    def __missing__(self, word: str) -> Reason:
        return self.get(word.lower(), "failed")
