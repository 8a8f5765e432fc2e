"""Clients that document tools in their prompt and read calls out of the text.

documented(prompt)                  the tools that a prompt documents, and in which form it asks for calls
structured(messages, …)             a conversation of such a client as one with calls and results
ClientReader                        what such a client reads of a reply
"""

from vtc.dialects.text_client.conversation import (
    NO_RESULT_TEXT,
    ClientReader,
    is_readable,
    rewrite_samples,
    structure_messages,
    write_for_client,
)
from vtc.dialects.text_client.documented_tools import Documentation, find_documented_tools

__all__ = [
    "NO_RESULT_TEXT",
    "ClientReader",
    "Documentation",
    "find_documented_tools",
    "is_readable",
    "rewrite_samples",
    "structure_messages",
    "write_for_client",
]
