"""A fault of the reader's rules inside a reply: it fails open with all its text, or closed, and blocks nothing."""

from __future__ import annotations

import dataclasses

import msgspec
import pytest

from tests.apis import chat
from tests.apis.shapes import SHAPES
from tests.dialects import faulty
from tests.exchanges import PROFILES, agent, feed_stream
from vtc.apis import APIS, Api
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Planner, PolicyProfile, Settings

TEXT = faulty.HEAD + '"filePath": "/a"}}\n</tool_call>\nand more.'
PIECES = [TEXT[at : at + 5] for at in range(0, len(TEXT), 5)]
DENYING = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert({"denied_tools": ["rm"]}, Guards))
STRICT = Planner(dataclasses.replace(PROFILES, policies={"mine": DENYING}), Settings())


def open_api_session(api: Api, planner: Planner) -> Session:
    body = chat.encode_json(SHAPES[api.name].request(stream=True))
    return Session.open(api, body, agent(api.name, stream=True), planner, "seed")


@pytest.fixture(autouse=True, params=faulty.RULES)
def rule(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty.RULES[request.param](monkeypatch)


@pytest.mark.every
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_reply_fails_open_unchanged(api: Api, caplog: pytest.LogCaptureFixture) -> None:
    shape = SHAPES[api.name]
    exchange = open_api_session(api, Planner(PROFILES, Settings()))
    frames = shape.streamed(*PIECES)
    assert feed_stream(exchange.stream(), *frames) == b"".join(frames)
    (failure,) = exchange.report.failures
    assert failure.startswith("Livelock: no progress in state ")
    assert "the rest of this reply is forwarded unchanged" in caplog.records[0].message
    exchange, body = open_api_session(api, Planner(PROFILES, Settings())), chat.encode_json(shape.whole(TEXT))
    assert exchange.whole.rewrite(body) == body
    assert [one.partition(":")[0] for one in exchange.report.failures] == ["Livelock"]


@pytest.mark.every
@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_reply_fails_closed_if_a_policy_denies_calls(api: Api) -> None:
    shape = SHAPES[api.name]
    streamed, whole = open_api_session(api, STRICT), open_api_session(api, STRICT)
    outs = (
        feed_stream(streamed.stream(), *shape.streamed(*PIECES)),
        whole.whole.rewrite(chat.encode_json(shape.whole(TEXT))),
    )
    for exchange, out in zip((streamed, whole), outs, strict=True):
        assert b"filePath" not in out
        assert not exchange.report.failures
        assert [(one["policy"], one["action"]) for one in exchange.report.policies] == [("unread_calls", "refused")]
