"""Derive the dialect of a model from its chat template.

KnownCall, KnownReply          a reply whose calls are known
write_replies, TemplateReplies the texts of replies as a chat template writes them
"""

from vtc.deriving.conversations import KnownCall, KnownReply, TemplateReplies, write_replies

__all__ = ["KnownCall", "KnownReply", "TemplateReplies", "write_replies"]
