"""Requests of real agents to unknown servers: each is accepted in the end, and at once from then on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.agents.recordings import load_recordings
from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.exchange.asking.applied_steps import BY_NAME
from tests.exchange.asking.servers import RULES, send_until_accepted
from tests.exchanges import AGENT, planner
from vtc.exchange import Session
from vtc.profiles import Memory

RECORDED = load_recordings()


@pytest.mark.parametrize("agent", RECORDED)
@pytest.mark.parametrize("rule", RULES)
def test_each_request_is_taken_and_the_same_again_at_once(rule: str, agent: str) -> None:
    client, body = RECORDED[agent]["api"], chat.encode_json(RECORDED[agent]["body"])
    plans = planner(**({} if client == "openai-chat" else {"upstream_api": ("openai-chat",)}))
    facts, memory = replace(AGENT, path=SHAPES[client].build_path()), Memory()
    first, again = (
        send_until_accepted(Session.open(BY_NAME[client], body, facts, plans, "seed", memory), RULES[rule])
        for _ in range(2)
    )
    assert again == first[-1:]
