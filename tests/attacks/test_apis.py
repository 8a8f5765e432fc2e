"""No client of any API finds a denied call in the reply that it gets."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from fuzz.policies import FORBIDDEN_TOOLS, POLICIES, open_session
from tests.apis import messages, ollama, responses
from tests.attacks.clients import cline, find_calls, find_chat_calls
from tests.attacks.lab import CLINE, PROMPT, stream_reply
from tests.attacks.seeds import CALLS
from tests.attacks.test_model import HERMES, SRC, TWICE, as_markup
from tests.exchanges import PROFILES
from vtc.apis import APIS
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Planner, PolicyProfile, Settings

pytestmark = pytest.mark.every

CLIENTS = {"chat": 1, "messages": 2, "responses": 3, "ollama": 4, "gemini": 5}


@pytest.mark.parametrize("choice", range(len(POLICIES)))
@pytest.mark.parametrize("what", CALLS)
def test_no_denied_call_is_sent(what: str, choice: int) -> None:
    body, whole = CALLS[what]
    assert "bash" in find_calls(body)
    exchange = open_session(choice, CLIENTS[what.partition(",")[0]])
    if whole:
        out = exchange.whole.rewrite(body)
    else:
        stream = exchange.stream()
        out = b"".join([*stream.feed(body), *stream.finish()])
    assert not (find_calls(out) | find_chat_calls(out)) & FORBIDDEN_TOOLS
    assert exchange.report.failures == []


MODULES = {"messages": messages, "responses": responses, "ollama": ollama}
PROMPTED: dict[str, dict[str, Any]] = {
    "messages": {**messages.request("Look.", stream=True), "system": PROMPT},
    "responses": {**responses.request("Look.", stream=True), "instructions": PROMPT},
    "ollama": {
        **ollama.request("Look.", stream=True),
        "messages": [{"role": "system", "content": PROMPT}, {"role": "user", "content": "Look."}],
    },
}


@pytest.mark.parametrize("way", ["own", "hermes"])
@pytest.mark.parametrize("what", TWICE)
@pytest.mark.parametrize("name", MODULES)
def test_cline_reads_no_argument_that_a_rule_did_not_see(name: str, what: str, way: str) -> None:
    tool, arguments = TWICE[what]
    text = as_markup(tool, arguments) if way == "own" else HERMES.format(tool, json.dumps(arguments))
    module = MODULES[name]
    api = next(api for api in APIS if api.place.match_path(module.PATH))
    policy = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(SRC, Guards))
    planner = Planner(dataclasses.replace(PROFILES, policies={"mine": policy}), Settings())
    asked = {key: value for key, value in PROMPTED[name].items() if key != "tools"}
    facts = dataclasses.replace(CLINE, path=module.PATH)
    exchange = Session.open(api, json.dumps(asked).encode(), facts, planner, "seed")
    body = stream_reply(exchange, module.make_text_stream(text[:9], text[9:]))
    shown = module.read(body).content
    for _, read in cline(shown) + cline(shown, roo=True):
        assert read["path"].startswith("src/"), shown
    assert cline(shown) in ([], [TWICE[what]])
    assert exchange.report.failures == []
