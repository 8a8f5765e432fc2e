"""A conversation of several turns through VTC with stored reasoning."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.apis import chat
from tests.apis.conversations import BY_NAME, decode_reply, get_history_key, make_answer_entries
from tests.apis.shapes import SHAPES
from tests.exchanges import AGENT, feed_stream, planner
from vtc.exchange import Session
from vtc.profiles import Facts, Memory, Planner, Profiles


class Talk:
    """One client's conversation with a reasoning model."""

    def __init__(
        self, client: str, server: str = "", memory: Memory | None = None, facts: Facts = AGENT, **settings: Any
    ) -> None:
        self.client, self.server = client, server or client
        self.memory = memory or Memory()
        self.facts = facts
        self.settings = settings
        self.entries: list[Any] = []
        self.model = "made-up-model"
        self.count = 0
        self.forgets = False
        self.secret = b"of this proxy"
        self.profiles: Profiles | None = None

    def ask(self, *entries: Any, **fields: Any) -> dict[str, Any]:
        """Send the conversation with these entries; return the server's request."""
        self.entries = [*self.entries, *entries]
        fields = {get_history_key(self.client): self.entries, "stream": True, "model": self.model, **fields}
        body = chat.encode_json(SHAPES[self.client].request(**fields))
        api = () if self.client == self.server else (self.server,)
        plans = planner(**({"upstream_api": api} if api else {}), **self.settings)
        plans = Planner(self.profiles, plans.settings) if self.profiles else plans
        self.count += 1
        facts = self.facts
        if SHAPES[self.client].streaming:
            facts = replace(facts, path=SHAPES[self.client].build_path(stream=fields["stream"], model=fields["model"]))
        memory = None if self.forgets else self.memory
        seed = f"seed {self.count}"
        self.exchange = Session.open(BY_NAME[self.client], body, facts, plans, seed, memory, (self.secret,))
        self.sent = self.exchange.encode_request()
        self.received = body
        return json.loads(self.sent)  # type: ignore[no-any-return]

    def reply(self, body: bytes, result: str = "found") -> bytes:
        """Let the server reply, and the client continue without the parts that it does not keep."""
        out = feed_stream(self.exchange.stream(), body)
        self.entries = [*self.entries, *make_answer_entries(self.client, decode_reply(self.client, out), result)]
        return out


def one_id(server: str, body: bytes, turn: int) -> bytes:
    """Replace ids of calls that a server generates in each turn."""
    return body.replace(b"call_0", f"call_{turn}".encode()).replace(b"toolu_0", f"toolu_{turn}".encode())
