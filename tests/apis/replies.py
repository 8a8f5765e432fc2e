"""The replies in `tests/cases/replies`, and which of them the strictest clients reject."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parents[1] / "cases" / "replies"

REPLIES = {
    str(file.relative_to(FOLDER)): file.read_bytes()
    for file in sorted(FOLDER.rglob("*"))
    if file.suffix != ".md" and file.is_file()
}
"""Bodies by file, for example ``messages/vllm.sse``."""

DEVIATIONS = {
    "messages/llama-cpp.sse": "begins while",
    "messages/sglang-text-in-a-call.sse": "text_delta for a block tool_use",
    "messages/vllm-done-marker.sse": "DONE",
    "ollama/calls-with-ids.ndjson": "an id that no one asked for",
    "responses/copilot-rotating-ids.sse": "the id of the response",
    "responses/llama-cpp.sse": "created_at",
    "responses/ollama.sse": "item 0 begins|item 0 follows",
}
"""Replies at which some client fails, and the strict parser's message about them."""

MIXED = {
    "messages/llama-cpp.sse": ["I should look at it.", "Looking at the file.\n\n", {"filePath": "a.txt"}],
    "messages/sglang-text-in-a-call.sse": ["Looking at it.", {"filePath": "a.txt"}, "\n\nI will wait."],
}
"""Replies with blocks that stay open while others begin, or with text in the block of a call, and their contents."""

ERRORS = ("messages/anthropic-overloaded.sse", "ollama/parser-error.ndjson")
"""Replies that end in an error of the server."""


def of(api: str) -> dict[str, bytes]:
    """Return the replies in a folder (``messages``) that all clients accept, by file."""
    others = {*DEVIATIONS, *ERRORS}
    return {name: body for name, body in REPLIES.items() if name.startswith(f"{api}/") and name not in others}
