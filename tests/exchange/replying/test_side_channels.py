"""Log probabilities, annotations and citations: they contain no text that a policy removed."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import msgspec
import pytest

from tests.apis import chat, gemini, messages, ollama, responses
from tests.apis.pairs import CROSSED
from tests.apis.shapes import SHAPES
from tests.exchange.crossings import BY_NAME
from tests.exchanges import PROFILES, agent, declare_tools, feed_stream
from vtc.exchange import Session
from vtc.guards import Guards
from vtc.profiles import Match, Planner, PolicyProfile, Settings

RULES = {"content": [{"pattern": "SECRET\\w+", "replacement": "xxx"}], "denied_tools": ["rm"], "on_denied": "steer"}
POLICY = PolicyProfile(name="mine", match=Match(), guards=msgspec.convert(RULES, Guards))
PLANNER = Planner(dataclasses.replace(PROFILES, policies={"mine": POLICY}), Settings())
NO_POLICY = Planner(PROFILES, Settings())
CALL = '<tool_call>\n{"name": "rm", "arguments": {"path": "SECRETpath"}}\n</tool_call>'
TEXTS = {
    "a match": ["The word ", "is ", "SECRETabc", " now."],
    "a match in pieces": ["The word is SEC", "RETa", "bc", " now."],
    "a refused call": ["I go.\n", CALL[:30], CALL[30:]],
}


def tokens(text: str) -> dict[str, Any]:
    return {"token": text, "logprob": -0.1, "bytes": [*text.encode()], "top_logprobs": []}


def stream_with_metadata(api: str, pieces: list[str]) -> bytes:
    """Encode a reply that repeats its text in metadata, with each piece and at its end."""
    whole = "".join(pieces)
    match api:
        case "openai-chat":
            frames = [
                chat.frame({**chat.HEAD, "choices": [
                    {"index": 0, "delta": {"content": piece}, "finish_reason": None,
                     "logprobs": {"content": [tokens(piece)]}}]})
                for piece in pieces
            ]  # fmt: skip
            cited = chat.chunk(
                {"annotations": [{"type": "url_citation", "url_citation": {"url": "u", "title": whole}}]}
            )
            return b"".join([chat.ROLE, *frames, cited, chat.STOP, chat.DONE])
        case "anthropic-messages":
            frames = messages.make_stream(messages.text_block(0, *pieces))
            citation = {"type": "web_search_result_location", "url": "u", "title": "d", "cited_text": whole}
            cited = {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "citations_delta", "citation": citation},
            }
            place = next(at for at, frame in enumerate(frames) if b"content_block_stop" in frame)
            made = f"event: {cited['type']}\ndata: {json.dumps(cited)}\n\n".encode()
            return b"".join([*frames[:place], made, *frames[place:]])
        case "openai-responses":
            out = []
            for frame in responses.make_stream(responses.text_events(*pieces)):
                head, _, data = frame.partition(b"data: ")
                event = json.loads(data)
                for part in (event, event.get("part"), *_parts(event.get("item")), *_parts(event.get("response"))):
                    text = part and (part.get("delta") or part.get("text"))
                    if text:
                        part["logprobs"] = [tokens(text)]
                        if "type" in part and part["type"] == "output_text":
                            part["annotations"] = [{"type": "url_citation", "title": text, "url": "u",
                                                    "start_index": 0, "end_index": 1}]  # fmt: skip
                out.append(head + b"data: " + json.dumps(event).encode() + b"\n\n")
            return b"".join(out)
        case "gemini-generate":
            events = []
            for piece in pieces:
                event = gemini.event(gemini.text(piece))
                event["candidates"][0]["logprobsResult"] = {"chosenCandidates": [{"token": piece}]}
                events.append(gemini.frame(event))
            last = gemini.event(gemini.text(""))
            last["candidates"][0] |= {
                "finishReason": "STOP",
                "groundingMetadata": {"groundingSupports": [{"segment": {"text": whole}}]},
                "citationMetadata": {"citationSources": [{"uri": whole}]},
            }
            return b"".join([*events, gemini.frame(last)])
    lines = [json.loads(ollama.piece(piece)) | {"logprobs": [tokens(piece)]} for piece in pieces]
    return b"".join(ollama.make_stream(*(chat.encode_json(line) + b"\n" for line in lines)))


def _parts(item: Any) -> list[Any]:
    items = (item or {}).get("output", [item] if item else [])
    return [part for one in items for part in one.get("content", ())]


def fold_stream(api: str, stream: bytes) -> bytes:
    """Return the whole reply that the frames of a stream add up to."""
    lines = (line.removeprefix(b"data:").strip() for line in stream.split(b"\n"))
    return chat.encode_json(BY_NAME[api].fold([json.loads(line) for line in lines if line.startswith(b"{")]))


def open_tools(api: str, planner: Planner, *, stream: bool) -> Session:
    tools = declare_tools(api, {name: {"type": "object"} for name in ("rm", "read")})
    body = chat.encode_json(SHAPES[api].request(stream=stream, tools=tools))
    return Session.open(BY_NAME[api], body, agent(api, stream=stream), planner, "seed")


@pytest.mark.every
@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("api", SHAPES)
def test_repetition_of_a_changed_text_is_removed(api: str, text: str) -> None:
    body = stream_with_metadata(api, TEXTS[text])
    for size in (len(body), 50):
        exchange = open_tools(api, PLANNER, stream=True)
        out = feed_stream(exchange.stream(), *(body[at : at + size] for at in range(0, len(body), size)))
        assert exchange.report.failures == []
        assert b"SECRET" not in out
        assert b"RETa" not in out
        assert str([*b"SECRET"])[1:-1].encode() not in out
    out = open_tools(api, PLANNER, stream=False).whole.rewrite(fold_stream(api, body))
    assert b"SECRET" not in out
    assert str([*b"SECRET"])[1:-1].encode() not in out


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize(("client", "server"), CROSSED)
def test_repetition_of_a_changed_text_is_removed_on_bridges(client: str, server: str, text: str) -> None:
    body = stream_with_metadata(server, TEXTS[text])
    bridge = Planner(PLANNER.profiles, Settings(upstream_api=(server,)))
    for size in (len(body), 50):
        pieces = (body[at : at + size] for at in range(0, len(body), size))
        assert b"SECRET" not in feed_stream(open_tools(client, bridge, stream=True).stream(), *pieces)
    assert b"SECRET" not in open_tools(client, bridge, stream=False).whole.rewrite(fold_stream(server, body))


@pytest.mark.parametrize("api", SHAPES)
def test_repetition_of_an_unchanged_text_is_sent_with_it(api: str) -> None:
    body = stream_with_metadata(api, ["The word ", "is SECRETabc", " now."])
    assert feed_stream(open_tools(api, NO_POLICY, stream=True).stream(), body) == body
