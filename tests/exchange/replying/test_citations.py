"""Citations of web pages, on bridges between APIs that have them, as the official SDKs read them."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.apis import chat, messages, pairs, responses, sdks
from tests.exchange.crossings import STREAM, open_bridge
from tests.exchanges import feed_stream

CITING = ("openai-chat", "anthropic-messages", "openai-responses")
PLAIN, CITED = "I looked. Ä😀", "It is from 2012."
PAGE = {"url": "https://rust.example/", "title": "Rust"}
QUOTE = "Rust 0.1, 2012"
IN_MESSAGES = {"type": "web_search_result_location", **PAGE, "cited_text": QUOTE, "encrypted_index": "Eo8B"}
IN_RESPONSES = {"type": "url_citation", **PAGE, "start_index": 0, "end_index": len(CITED)}
PLACE = {"start_index": len(PLAIN), "end_index": len(PLAIN + CITED)}
IN_CHAT = {"type": "url_citation", "url_citation": {**PAGE, **PLACE, "content": QUOTE}}


def make_reply(server: str, *, stream: bool, early: bool = False) -> bytes:
    """Render a reply of two texts, of which the second cites a page; `early`: before it, or in the same chunk."""
    match server:
        case "openai-chat":
            annotated = {"content": PLAIN + CITED, "annotations": [IN_CHAT]}
            if not stream:
                return chat.encode_json(chat.completion(None, message=annotated))
            late = [chat.chunk({"content": CITED}), chat.chunk({"annotations": [IN_CHAT]})]
            chunks = [chat.chunk(annotated | {"content": CITED})] if early else late
            return b"".join([chat.ROLE, chat.chunk({"content": PLAIN}), *chunks, chat.STOP, chat.DONE])
        case "anthropic-messages":
            if not stream:
                cited = {**messages.text(CITED), "citations": [IN_MESSAGES]}
                return chat.encode_json(messages.message(messages.text(PLAIN), cited))
            begun, text, stop = messages.text_block(1, CITED)
            citation = messages.delta(1, "citations_delta", citation=IN_MESSAGES)
            block = [begun, citation, text, stop] if early else [begun, text, citation, stop]
            return b"".join(messages.make_stream(messages.text_block(0, PLAIN), block))
    plain, cited_message = responses.message(PLAIN), responses.message(CITED, "msg_2")
    cited_message["content"][0]["annotations"] = [IN_RESPONSES]
    if not stream:
        return chat.encode_json(responses.response(plain, cited_message))
    events = responses.text_events(CITED, id="msg_2")
    about = {"item_id": "msg_2", "content_index": 0, "annotation_index": 0, "annotation": IN_RESPONSES}
    events.insert(2 if early else 3, {"type": "response.output_text.annotation.added", **about})
    return b"".join(responses.make_stream(responses.text_events(PLAIN), events))


type Cited = list[tuple[str, str, str, str]]
"""The text, address, title and quote of each citation."""


async def read_citations(client: str, body: bytes, *, stream: bool) -> Cited:
    """Parse the citations of a reply with the SDK of its API."""
    match client:
        case "openai-chat":
            if stream:
                chunks = [ChatCompletionChunk.model_validate(event) for event in chat.events(body)[:-1]]
                deltas: list[Any] = [choice.delta for chunk in chunks for choice in chunk.choices]
            else:
                deltas = [choice.message for choice in ChatCompletion.model_validate_json(body).choices]
            text = "".join(delta.content or "" for delta in deltas)
            dumped = [delta.model_dump().get("annotations") or [] for delta in deltas]
            pages = [(text, entry["url_citation"]) for entries in dumped for entry in entries]
        case "anthropic-messages":
            blocks = (await sdks.read_messages([body], stream=stream)).blocks
            pages = [(block["text"], entry) for block in blocks for entry in block.get("citations") or ()]
        case _:
            items = (await sdks.read_responses([body], stream=stream)).items
            parts = [part for item in items for part in item.get("content", ())]
            pages = [(part["text"], entry) for part in parts for entry in part["annotations"]]
            added = [event.data for event in responses.events(body) if "annotation" in event.data] if stream else []
            assert not stream or [event["annotation"] for event in added] == [entry for _, entry in pages]
    return [
        (
            text[page.get("start_index") : page.get("end_index")],
            page["url"],
            page["title"],
            page.get("content") or page.get("cited_text") or "",
        )
        for text, page in pages
    ]


@STREAM
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize(
    ("client", "server"), [(client, server) for client, server in pairs.CROSSED if {client, server} < {*CITING}]
)
async def test_a_citation_crosses_a_bridge(client: str, server: str, *, stream: bool, early: bool) -> None:
    body = make_reply(server, stream=stream, early=early)
    # The block of a client of Messages has the whole text of a server without blocks.
    text = PLAIN + CITED if (client, server) == ("anthropic-messages", "openai-chat") else CITED
    wanted = [(text, *PAGE.values(), "" if server == "openai-responses" else QUOTE)]
    for size in (len(body), 7) if stream else (len(body),):
        exchange = open_bridge(client, server, stream=stream)
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        out = feed_stream(exchange.stream(), *pieces) if stream else exchange.whole.rewrite(body)
        assert pairs.read(client, out, stream=stream).text.replace("\n", "") == PLAIN + CITED
        assert await read_citations(client, out, stream=stream) == wanted
        assert not any("left out of the reply" in note for note in exchange.report.notes)


@pytest.mark.parametrize("together", [1, 3, 100])
@pytest.mark.parametrize(
    ("client", "server"),
    [(client, server) for client, server in pairs.CROSSED if client in CITING and server in ("openai-chat", CITING[2])],
)
async def test_the_place_of_a_citation_counts_text_that_no_reader_saw(client: str, server: str, together: int) -> None:
    words = [f"word {number}, " for number in range(40)]
    place = {"start_index": len("".join(words[:20])), "end_index": len("".join(words[:21]))}
    if server == "openai-chat":
        annotation: Any = {"type": "url_citation", "url_citation": {**PAGE, **place}}
        frames = [chat.ROLE, *chat.make_text_chunks(*words), chat.chunk({"annotations": [annotation]}), chat.STOP]
    else:
        events = responses.text_events(*words)
        added = {"type": "response.output_text.annotation.added", "item_id": "msg_1", "content_index": 0}
        annotation = {"type": "url_citation", **PAGE, **place}
        events.insert(len(words) + 2, {**added, "annotation_index": 0, "annotation": annotation})
        frames = responses.make_stream(events)
    pieces = [b"".join(frames[at : at + together]) for at in range(0, len(frames), together)]
    out = feed_stream(open_bridge(client, server, stream=True).stream(), *pieces)
    wanted = "".join(words) if client == "anthropic-messages" else words[20]
    assert [cited for cited, *_ in await read_citations(client, out, stream=True)] == [wanted]


@pytest.mark.parametrize("client", ["ollama-chat", "gemini-generate"])
@pytest.mark.parametrize("server", CITING)
def test_a_citation_is_reported_if_the_api_has_none(client: str, server: str) -> None:
    exchange = open_bridge(client, server, stream=True)
    feed_stream(exchange.stream(), make_reply(server, stream=True))
    assert exchange.report.notes[-1].endswith(": citations")


@pytest.mark.parametrize("client", CITING[1:])
def test_a_citation_behind_its_item_is_reported(client: str) -> None:
    chunks = [{"content": PLAIN + CITED}, {"reasoning_content": "Hm."}, {"annotations": [IN_CHAT]}]
    exchange = open_bridge(client, "openai-chat", stream=True)
    out = feed_stream(exchange.stream(), *map(chat.chunk, chunks), chat.STOP, chat.DONE)
    assert pairs.read(client, out, stream=True).text == PLAIN + CITED
    assert exchange.report.notes[-1].endswith(": citations")


@pytest.mark.parametrize("place", [(-5, 3), (4, 2), (900, 999), (0, 0), (True, None), ("1", [])])
async def test_the_place_of_a_citation_is_inside_the_text(place: tuple[Any, Any]) -> None:
    numbers = dict(zip(("start_index", "end_index"), place, strict=True))
    annotation = {"type": "url_citation", "url_citation": {**PAGE, **numbers}}
    body = chat.encode_json(chat.completion(None, message={"content": CITED, "annotations": [annotation]}))
    out = open_bridge("openai-responses", "openai-chat", stream=False).whole.rewrite(body)
    (page,) = responses.read(out).items[0]["content"][0]["annotations"]
    assert 0 <= page["start_index"] <= page["end_index"] <= len(CITED)
