"""Continue a conversation that the server keeps: send only the messages after its last reply.

    {"chat_id": "c-1", "parent_id": null,    "messages": [system, user]}      the first request
    {"chat_id": "c-1", "parent_id": "r-1",   "messages": [result]}            the next, after the reply with the id r-1

The server's profile names the fields (`conversation`). A reply is recognized by its conversation, its calls and its
text, as the client sends them back (`conversation.py`). If the last reply of a request is unknown (after a restart, in
an edited or shortened history), the whole conversation is sent with the id of a new one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vtc.apis import Request
from vtc.events import Message, ToolCall
from vtc.exchange.remembering.conversation import Conversation, digest_sent_turn, list_reply_keys
from vtc.profiles.memory import Memory
from vtc.profiles.schema import ConversationFields


class KeptReply(NamedTuple):
    """A reply that the server knows: the id of its conversation, and its own."""

    conversation: str
    reply: str


class KeptConversation:
    """The place of one request in a conversation that its server keeps."""

    def __init__(self, memory: Memory, owner: bytes, fields: ConversationFields, request: Request, seed: str) -> None:
        """Find the last reply of the request; `owner` is a digest of client, server, model and offered tools."""
        self._memory = memory.kept_replies
        self._fields = fields
        self._seed = seed
        self.reply_id_path = fields.reply_id
        """The dotted path of a reply's id in its frames."""
        self._reply_id = ""
        self._restarts = 0
        *turns, coming = Conversation(request.messages, owner).turns
        self._before = coming.before
        last = next((turn for turn in reversed(turns) if turn.messages[0].role == "assistant"), None)
        is_followed = last is not None and last is not turns[-1]
        known = self._memory.get(digest_sent_turn(last.before, last.messages)) if last and is_followed else None
        self._last = known if isinstance(known, KeptReply) else None

    def record_id(self, reply_id: str) -> None:
        """Record the id of the reply to this request."""
        self._reply_id = reply_id

    def restart(self) -> bool:
        """Begin a new conversation at the server; return False if this request begins one already."""
        last, self._last = self._last, None
        self._restarts += 1
        return last is not None

    @property
    def id(self) -> str:
        """The id of the conversation; for a new one in the form of a random UUID, derived from the exchange's seed."""
        if self._last:
            return self._last.conversation
        digest = hashlib.sha256(f"{self._seed} {self._restarts}".encode()).hexdigest()
        return f"{digest[:8]}-{digest[8:12]}-4{digest[12:15]}-a{digest[15:18]}-{digest[18:30]}"

    @property
    def body_fields(self) -> Mapping[str, str | None]:
        """The fields of the request's body."""
        ids = {self._fields.id: self.id, self._fields.parent: self._last.reply if self._last else None}
        return {path: value for path, value in ids.items() if path}

    def select_new(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Select the messages that the server does not have."""
        if self._last is None:
            return messages
        start = max((at + 1 for at, message in enumerate(messages) if message.role == "assistant"), default=0)
        repeated = ("system",) if self._fields.repeats_system else ()
        return [message for at, message in enumerate(messages) if at >= start or message.role in repeated]

    def store_reply(self, calls: Sequence[ToolCall], text: bytes) -> None:
        """Store the reply as its client received it; `text` is the digest of its text."""
        if self._reply_id:
            reply = KeptReply(self.id, self._reply_id)
            for key in list_reply_keys(self._before, calls, text):
                self._memory.store(key, reply, sum(map(len, reply)))
