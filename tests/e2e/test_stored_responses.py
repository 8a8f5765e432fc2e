"""Responses clients that refer to earlier responses, with servers of other APIs, through a real mitmproxy."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.apis import chat, pairs, responses
from tests.apis.shapes import SHAPES
from tests.e2e.conftest import Lab, Start
from tests.e2e.sdk_talks import serving

SERVERS = [name for name in SHAPES if name != "openai-responses"]
RESULT = {"type": "function_call_output", "output": "hello"}


def make_sdk(lab: Lab, key: str = "k") -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key=key, base_url=f"{lab.proxy.url}/v1", max_retries=0, http_client=lab.client)


async def ask(sdk: openai.AsyncOpenAI, *, stream: bool, **fields: Any) -> Any:
    """Ask for a response; return it as the SDK parses it, from the last event if it is streamed."""
    asked = sdk.responses.create(model=chat.MODEL, tools=[responses.READ], stream=stream, **fields)  # type: ignore[call-overload]
    if not stream:
        return await asked
    return [event async for event in await asked][-1].response


def sent_texts(lab: Lab) -> str:
    return json.dumps(lab.upstream.seen[-1].json, ensure_ascii=False)


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("in_text", [False, True], ids=["native", "as text"])
@pytest.mark.parametrize("server", SERVERS)
async def test_server_gets_the_conversation_before_a_previous_response(
    server: str, in_text: bool, stream: bool, start: Start
) -> None:
    lab = await start(serving(server, in_text=in_text), vtc_upstream_api=server)
    sdk = make_sdk(lab)
    first = await ask(sdk, stream=stream, input="Read the file of Ada.", instructions="Be brief.")
    (call,) = [item for item in first.output if item.type == "function_call"]
    second = await ask(sdk, stream=stream, previous_response_id=first.id, input=[{**RESULT, "call_id": call.call_id}])
    assert second.output_text == "It says hello."
    for text in ("Read the file of Ada.", *([] if in_text else ["I look."]), "/a", "hello"):
        assert text in sent_texts(lab)
    assert "Be brief." not in sent_texts(lab)  # instructions are those of one request, as OpenAI documents
    third = await ask(sdk, stream=stream, previous_response_id=second.id, input="Thanks for hello.")
    assert third.output_text == "It says hello."
    for text in ("Read the file of Ada.", "It says hello.", "Thanks for hello."):
        assert text in sent_texts(lab)
    # A branch: the first response again, with another input.
    await ask(sdk, stream=stream, previous_response_id=first.id, input=[{**RESULT, "call_id": call.call_id}])
    assert "Thanks for hello." not in sent_texts(lab)


async def test_references_to_items_of_a_response_are_replaced_by_the_items(start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    sdk = make_sdk(lab)
    first = await ask(sdk, stream=True, input="Read the file of Ada.")
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    call = next(item for item in first.output if item.type == "function_call")
    items = [responses.make_input_message("user", "Ada?"), *references, {**RESULT, "call_id": call.call_id}]
    second = await ask(sdk, stream=True, input=items)
    assert second.output_text == "It says hello."
    pairs.check_request("openai-chat", lab.upstream.seen[-1].json)
    assert "I look." in sent_texts(lab)


@pytest.mark.parametrize("case", ["other key", "store false", "cache off", "unknown"])
async def test_reference_to_a_response_that_is_not_stored_is_an_error(case: str, start: Start) -> None:
    """Another client must not get the conversation, and nothing is stored if the client or the user forbids it."""
    options = {"vtc_cache": "off"} if case == "cache off" else {}
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat", **options)
    first = await ask(make_sdk(lab), stream=True, input="hello", store=case != "store false")
    id_ = "resp_1" if case == "unknown" else first.id
    with pytest.raises(openai.BadRequestError, match="previous_response_id is known to no server of openai-chat"):
        await ask(
            make_sdk(lab, "other" if case == "other key" else "k"), stream=True, previous_response_id=id_, input="x"
        )
    assert len(lab.upstream.seen) == 1


async def test_a_server_of_responses_gets_the_id_unchanged(start: Start) -> None:
    lab = await start(serving("openai-responses"))
    first = await ask(make_sdk(lab), stream=True, input="hello")
    await ask(make_sdk(lab), stream=True, previous_response_id=first.id, input="hello again")
    assert lab.upstream.seen[-1].json["previous_response_id"] == first.id
    assert lab.upstream.seen[-1].json["input"] == "hello again"


async def test_responses_survive_a_reload_of_the_profiles(start: Start) -> None:
    lab = await start(serving("openai-chat"), vtc_upstream_api="openai-chat")
    first = await ask(make_sdk(lab), stream=True, input="hello")
    lab.proxy.addon.addons[1].reload()
    await ask(make_sdk(lab), stream=True, previous_response_id=first.id, input="hello again")
    assert "It says hello." in sent_texts(lab)
