"""The words by which servers say why a reply ended.

Each API lists its own words; servers also use those of other APIs and of their engines. Only listed words count: any
other word denotes a fault of the server.
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
    """The reasons by all words that a server of an API may use; a word that is not listed is a fault."""

    def __init__(self, own: Mapping[str, Reason]) -> None:
        """Add the words of other APIs to those of this one."""
        super().__init__({**REASON_SYNONYMS, **own})

    def __missing__(self, word: str) -> Reason:
        return self.get(word.lower(), "failed")
