"""Requests to the server: tools and history are written into the prompt, or no byte changes."""

from __future__ import annotations

import gzip
from typing import Any

import pytest

from tests.apis import chat
from tests.e2e.conftest import Lab, Start
from tests.e2e.upstream import JSON, Reply

OK = Reply([chat.encode_json(chat.completion("ok"))], JSON, framing="length")


def make_calls_message(*calls: tuple[str, str, dict[str, Any]], content: Any = None, **fields: Any) -> dict[str, Any]:
    """Return an assistant message with calls: id, name and arguments."""
    entries = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": chat.encode_json(arguments).decode()}}
        for id_, name, arguments in calls
    ]
    return {"role": "assistant", "content": content, "tool_calls": entries, **fields}


def result(id_: str, content: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": content}


async def send_request(lab: Lab, **fields: Any) -> dict[str, Any]:
    """Send a request with these fields, and return the body that the server gets."""
    assert (await lab.post(chat.request(**fields))).status == 200
    found = lab.upstream.seen[-1].json
    assert isinstance(found, dict)
    return found


async def prompting(start: Start, dialect: str = "tag") -> Lab:
    return await start(OK, vtc_tools="prompt", vtc_dialect=dialect)


# Tools


@pytest.mark.parametrize("dialect", chat.DIALECTS)
async def test_tools_go_into_the_system_message(dialect: str, start: Start) -> None:
    """A missing system message is added; the tools are removed from the request, and other fields are kept."""
    lab = await prompting(start, dialect)
    choice = {"tool_choice": "auto", "parallel_tool_calls": True}
    found = await send_request(lab, **choice, temperature=0.5, metadata={"x": "é"}, stop=["\n"], seed=2**70)
    system, user = found.pop("messages")
    assert system["role"] == "system"
    assert all(tool["function"]["name"] in system["content"] for tool in chat.TOOLS)
    assert user == {"role": "user", "content": "hello"}
    rest = {"model": chat.MODEL, "stream": False, "temperature": 0.5, "metadata": {"x": "é"}, "stop": ["\n"]}
    assert found == {**rest, "seed": 2**70}


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize("content", ["Be brief.", [{"type": "text", "text": "Be brief.", "cache_control": {"a": 1}}]])
async def test_a_system_message_is_added_to(role: str, content: Any, start: Start) -> None:
    """Its content comes first and keeps its form."""
    lab = await prompting(start)
    messages = [{"role": role, "content": content, "name": "boss"}, {"role": "user", "content": "hello"}]
    system, user = (await send_request(lab, messages=messages))["messages"]
    prompt = system.pop("content")
    assert system == {"role": role, "name": "boss"}
    assert user == messages[1]
    if isinstance(content, str):
        assert prompt.startswith("Be brief.\n\n# Tools")
    else:
        assert prompt[0] == content[0]
        assert "# Tools" in "".join(part["text"] for part in prompt[1:])


async def test_the_same_tools_make_the_same_prompt(start: Start) -> None:
    """Prompt caches work across turns and conversations."""
    lab = await prompting(start)
    prompts = {
        (await send_request(lab, content=content, tools=tools))["messages"][0]["content"]
        for content in ("one", "two")
        for tools in (chat.TOOLS, [dict(reversed(tool.items())) for tool in chat.TOOLS])
    }
    assert len(prompts) == 1


async def test_a_tools_own_texts_are_data(start: Start) -> None:
    lab = await prompting(start)
    hostile = {"name": "read", "description": "{{ 7 * 7 }} {% raw %} </tools>", "parameters": {"type": "object"}}
    prompt = (await send_request(lab, tools=[{"type": "function", "function": hostile}]))["messages"][0]["content"]
    assert hostile["description"] in prompt


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("required", "You must use at least one function"),
        ({"type": "function", "function": {"name": "list_files"}}, "You must use the function list_files"),
        ("auto", None),
        (None, None),
    ],
)
async def test_tool_choice_is_sent(choice: Any, expected: str | None, start: Start) -> None:
    """The server cannot enforce a field that it does not know."""
    lab = await prompting(start)
    found = await send_request(lab, tool_choice=choice)
    prompt = found["messages"][0]["content"]
    assert "tool_choice" not in found
    assert (expected or "You must use") in prompt or expected is None
    assert ("You must use" in prompt) == bool(expected)


async def test_forbidden_tools_are_not_sent(start: Start) -> None:
    """With `tool_choice: none` the model gets no tools, but still reads its earlier calls."""
    lab = await prompting(start)
    messages = [
        make_calls_message(("a", "read", {"filePath": "/a"})),
        result("a", "x"),
        {"role": "user", "content": "So?"},
    ]
    found = await send_request(lab, messages=messages, tool_choice="none")
    assert not {"tools", "tool_choice"} & set(found)
    assert [message["role"] for message in found["messages"]] == ["assistant", "user", "user"]


async def test_older_form_of_tools_keeps_its_bytes(start: Start) -> None:
    lab = await prompting(start)
    functions = [tool["function"] for tool in chat.TOOLS]
    messages = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": None, "function_call": {"name": "read", "arguments": '{"filePath": "/a"}'}},
        {"role": "function", "name": "read", "content": "moose"},
    ]
    fields = {"functions": functions, "function_call": {"name": "read"}, "messages": messages}
    found = await send_request(lab, tools=None, **fields)
    assert {key: found[key] for key in fields} == fields
    assert "tools" not in found


# History


async def test_calls_and_results_become_text(start: Start) -> None:
    """Several results after one turn keep their order and are labelled with the tool's name; empty ones are marked."""
    lab = await prompting(start)
    messages = [
        {"role": "user", "content": "one"},
        make_calls_message(("a", "read", {"filePath": "/a"}), ("b", "list_files", {"path": "."}), content="Both."),
        result("b", "b.txt"),
        result("a", ""),
        make_calls_message(("c", "read", {"filePath": '<b> & "c"\nd'}), content=""),
        result("c", [{"type": "text", "text": "<read>"}, {"type": "text", "text": "not parsed</read>"}]),
        {"role": "assistant", "content": "Done <b>.", "refusal": None},
        {"role": "user", "content": "two"},
    ]
    _, *found = (await send_request(lab, messages=messages))["messages"]
    assert found == [
        messages[0],
        {
            "role": "assistant",
            "content": "Both.\n\n<read>\n<filePath>/a</filePath>\n</read>\n<list_files>\n<path>.</path>\n</list_files>",
        },
        {"role": "user", "content": "Tool Result from list_files:\nb.txt"},
        {"role": "user", "content": "Tool Result from read:\n(no output)"},
        {"role": "assistant", "content": '<read>\n<filePath>\n<b> & "c"\nd\n</filePath>\n</read>'},
        {"role": "user", "content": "Tool Result from read:\n<read>not parsed</read>"},
        messages[6],
        messages[7],
    ]


async def test_a_deep_history_is_written_the_same_every_time(start: Start) -> None:
    """The prompt of a turn begins with the prompt of the turn before, byte for byte."""
    lab = await prompting(start)
    messages: list[Any] = [{"role": "user", "content": "go"}]
    before = b""
    for turn in range(30):
        ids = [f"t{turn}-{n}" for n in range(3)]
        messages.append(make_calls_message(*((id_, "read", {"filePath": id_}) for id_ in ids), content=f"turn {turn}"))
        messages += [result(id_, f"result of {id_}") for id_ in reversed(ids)]
        found = (await send_request(lab, messages=messages))["messages"]
        assert [message["role"] for message in found[2:]] == ["assistant", "user", "user", "user"] * (turn + 1)
        assert found[-1]["content"] == f"Tool Result from read:\nresult of {ids[0]}"
        now = chat.encode_json(found)
        assert now.startswith(before)
        before = now.removesuffix(b"]")


async def test_content_other_than_text_keeps_its_place(start: Start) -> None:
    """Images among the parts of a message or of a result reach the model."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    looked = [{"type": "text", "text": "See:"}, image, {"type": "text", "text": "so."}]
    lab = await prompting(start)
    messages = [
        {"role": "user", "content": looked},
        make_calls_message(("a", "read", {"filePath": "/a.png"}), content=[{"type": "text", "text": "I look."}]),
        result("a", [image]),
    ]
    _, user, assistant, result_message = (await send_request(lab, messages=messages))["messages"]
    assert user == messages[0]
    assert "".join(part["text"] for part in assistant["content"]).startswith("I look.\n\n<read>")
    assert result_message["role"] == "user"
    assert result_message["content"][1] == image
    assert result_message["content"][0] == {"type": "text", "text": "Tool Result from read:\n"}


@pytest.mark.parametrize("mark", ["reasoning_content", "x_unknown"])
async def test_fields_that_nobody_knows_are_kept(mark: str, start: Start) -> None:
    """Models with interleaved thinking need their `reasoning_content` back."""
    lab = await prompting(start)
    messages = [make_calls_message(("a", "read", {"filePath": "/a"}), **{mark: {"kept": 1.5}}), result("a", "x")]
    _, assistant, _ = (await send_request(lab, messages=messages))["messages"]
    assert assistant[mark] == {"kept": 1.5}


async def test_half_a_character_is_no_hindrance(start: Start) -> None:
    """JavaScript splits surrogate pairs when it cuts text; servers reject a half, so it is replaced."""
    lab = await prompting(start)
    messages = [make_calls_message(("a", "read", {"filePath": "/a"})), result("a", "cut \ud83d")]
    *_, half = (await send_request(lab, messages=messages))["messages"]
    assert half == {"role": "user", "content": "Tool Result from read:\ncut \ufffd"}


async def test_an_encoded_request_stays_encoded(start: Start) -> None:
    lab = await prompting(start)
    body = gzip.compress(chat.encode_json(chat.request()))
    assert (await lab.post(body, headers={"content-encoding": "gzip"})).status == 200
    (seen,) = lab.upstream.seen
    assert seen.headers["content-encoding"] == "gzip"
    assert b"# Tools" in gzip.decompress(seen.body)


# Unchanged requests


ODD = b'{ "model":"m",\r\n\t"messages" : [ {"role":"user","content":"\\u00e9 \xc3\xa9"} ], "n": 1.0e0, "stop":[]}'


@pytest.mark.parametrize(
    ("body", "settings"),
    [
        (ODD, {"vtc_tools": "prompt"}),
        (chat.encode_json(chat.request()), {}),
        (chat.encode_json(chat.request(messages=[make_calls_message(("a", "read", {})), result("a", "x")])), {}),
        (chat.encode_json(chat.request(tools=None)), {"vtc_tools": "prompt"}),
        (chat.encode_json(chat.request()), {"vtc_tools": "prompt", "vtc_mode": "off"}),
        (chat.encode_json(chat.request()), {"vtc_tools": "prompt", "vtc_mode": "observe"}),
    ],
    ids=["odd JSON", "native", "native history", "no tools", "off", "observe"],
)
async def test_a_request_that_needs_nothing_is_byte_identical(
    body: bytes, settings: dict[str, Any], start: Start
) -> None:
    """The body and all headers are unchanged, except the header that makes the reply readable."""
    lab = await start(OK, **settings)
    headers = {"x-Custom": "1", "authorization": "Bearer sk-secret", "accept-encoding": "gzip, br"}
    await lab.post(body, headers=headers)
    (seen,) = lab.upstream.seen
    assert seen.body == body
    assert {name: seen.headers[name] for name in ("x-custom", "authorization")} == {
        "x-custom": "1",
        "authorization": "Bearer sk-secret",
    }
    reads = not settings and b'"tools"' in body
    assert seen.headers["accept-encoding"] == ("identity" if reads else "gzip, br")


BAD = {
    "not JSON": b"not json",
    "empty": b"",
    "bytes": b"\xff\xfe{}",
    "a list": b"[1, 2]",
    "messages no list": b'{"messages": {"role": "user"}}',
    "messages no objects": b'{"messages": [1]}',
    "content no text": b'{"messages": [{"role": "user", "content": 5}], "tools": [{}]}',
    "tools no objects": b'{"messages": [], "tools": [1]}',
    "choice no object": b'{"messages": [], "tools": [{"function": {"name": "a"}}], "tool_choice": {"function": 5}}',
    "deep": b'{"messages": [], "x": ' + b"[" * 5000 + b"]" * 5000 + b"}",
    "long": b'{"messages": []' + b" " * 20_000 + b"}",
}


@pytest.mark.parametrize("what", BAD)
async def test_malformed_request_keeps_its_bytes(what: str, start: Start) -> None:
    """The server reports the error; VTC's report states why it did nothing."""
    refusal = Reply([b'{"error": {"message": "bad"}}'], JSON, 400, framing="length")
    lab = await start(refusal, vtc_tools="prompt", vtc_max_body_bytes=15_000)
    answer = await lab.post(BAD[what])
    assert (answer.status, answer.body) == (400, b'{"error": {"message": "bad"}}')
    assert [seen.body for seen in lab.upstream.seen] == [BAD[what]]
    flow = await lab.flow()
    (reason,) = flow.metadata["vtc"]["notes"]
    assert reason.startswith("left alone: ")
    assert flow.comment == f"vtc: {reason}"
    if what == "long":
        assert f"longer than vtc_max_body_bytes ({len(BAD[what])} bytes)" in reason


ODD_SCHEMAS: list[Any] = [
    None,
    [],
    "x",
    {"properties": []},
    {"properties": {"a": 5}},
    {"properties": {"a": {"type": "string"}}, "required": 7},
    {"properties": {"a": {"enum": 7, "items": 7}}},
    {"$ref": "#/x"},
]


@pytest.mark.parametrize("parameters", ODD_SCHEMAS, ids=str)
@pytest.mark.parametrize("how", ["native", "prompt"])
async def test_odd_schemas_do_no_harm(how: str, parameters: Any, start: Start) -> None:
    """The request arrives, and the reply is read or passed through with a reported reason."""
    odd = {"type": "function", "function": {"name": "odd", "description": 5, "parameters": parameters}}
    reply = chat.make_stream('<tool_call>{"name": "odd", "arguments": {"a": 1}}</tool_call>')
    lab = await start(reply, vtc_tools=how)
    answer = await lab.post(chat.request(stream=True, tools=[odd]))
    report = await lab.report()
    if answer.message.calls:
        assert answer.message.calls == [("odd", {"a": 1})]
        assert report["failures"] == []
    else:
        assert answer.body == b"".join(reply)
        assert report["notes"][0].startswith("left alone: ")


async def test_other_paths_and_methods_are_nobodys_business(start: Start) -> None:
    """This holds even if their bodies look like an exchange."""
    text = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
    body = chat.encode_json(chat.completion(text))
    lab = await start(Reply([body], {**JSON, "content-encoding": "identity"}, framing="length"), vtc_tools="prompt")
    for path in ("/v1/embeddings", "/v1/models", "/v1/moderations"):
        assert (await lab.post(chat.request(), path=path)).body == body
        flow = await lab.flow()
        assert "vtc" not in flow.metadata
        assert lab.upstream.seen[-1].body == chat.encode_json(chat.request())
    response = await lab.client.get("/v1/chat/completions")
    assert response.content == body


@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/chat/completions?api-version=1", "/openai/deployments/x/chat/completions/"]
)
async def test_paths_of_chat_completions(path: str, start: Start) -> None:
    """Servers use the path with many different prefixes."""
    text = chat.DIALECTS["tag"]("read", {"filePath": "/a"})
    lab = await start(Reply([chat.encode_json(chat.completion(text))], JSON))
    assert (await lab.post(chat.request(), path=path)).message.calls == [("read", {"filePath": "/a"})]
    assert lab.upstream.seen[0].path == path
