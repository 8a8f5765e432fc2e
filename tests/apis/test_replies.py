"""The test parsers read the replies in `tests/cases/replies` like the SDKs, or reject them for the stated reason."""

from __future__ import annotations

import pytest

from tests.apis import messages, ollama, responses, sdks
from tests.apis.named_events import StreamError
from tests.apis.replies import DEVIATIONS, ERRORS, FOLDER, REPLIES, of

READERS = {"messages": messages.read, "responses": responses.read, "ollama": ollama.read}


def read(name: str) -> object:
    """Read a reply with the strict reader of its API."""
    if name.endswith(".json"):
        return ollama.read(REPLIES[name], stream=False)
    return READERS[name.partition("/")[0]](REPLIES[name])


@pytest.mark.parametrize("name", of("messages"))
async def test_a_reply_of_messages_is_read_as_the_sdk_reads_it(name: str) -> None:
    assert read(name) == await sdks.read_messages([REPLIES[name]])


# openai-python returns no final response for a reply that was cut off.
@pytest.mark.parametrize("name", [name for name in of("responses") if not name.endswith("-cut.sse")])
async def test_a_reply_of_responses_is_read_as_the_sdk_reads_it(name: str) -> None:
    assert read(name) == await sdks.read_responses([REPLIES[name]])


@pytest.mark.parametrize("name", of("ollama"))
async def test_a_reply_of_ollama_is_read_as_the_sdk_reads_it(name: str) -> None:
    stream = not name.endswith(".json")
    assert read(name) == await sdks.read_ollama([REPLIES[name]], stream=stream)


def test_a_cut_reply_of_responses_is_read() -> None:
    found = responses.read(REPLIES["responses/openai-cut.sse"])
    assert (found.content, found.reason) == ("This will be a long", "max_output_tokens")


@pytest.mark.parametrize(("name", "why"), DEVIATIONS.items(), ids=DEVIATIONS)
def test_a_reply_that_some_client_fails_at_is_refused(name: str, why: str) -> None:
    with pytest.raises((AssertionError, KeyError), match=why):
        read(name)


@pytest.mark.parametrize("name", ERRORS)
def test_a_reply_that_ends_in_an_error_is_refused_as_such(name: str) -> None:
    with pytest.raises(StreamError):
        read(name)


def test_reply_of_llama_cpp_is_valid_if_blocks_may_overlap() -> None:
    found = messages.read(REPLIES["messages/llama-cpp.sse"], overlapping=True)
    assert found.kinds == ["thinking", "text", "tool_use"]


def test_calls_of_ollama_with_ids_are_valid_if_ids_are_allowed() -> None:
    assert ollama.read(REPLIES["ollama/calls-with-ids.ndjson"], ids=True).ids == ["call_lab0201"]


def test_readme_describes_every_reply() -> None:
    text = (FOLDER / "README.md").read_text()
    assert [name for name in REPLIES if name.rpartition("/")[2] not in text] == []
