"""Clients that document tools in their prompt and parse calls from the text of a reply.

find_documented_tools(prompt)       the tools that a prompt documents, and the rest of the prompt
structure_messages(messages, …)     a conversation of such a client in structured form, with calls and results
ClientReader                        the calls that such a client finds in a reply
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
