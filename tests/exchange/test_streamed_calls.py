"""Native calls are sent piece by piece, in every API that has pieces."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.apis import chat, messages, responses
from tests.apis.shapes import SHAPES
from tests.exchanges import FILE, declare_tools, planner
from vtc.apis import APIS
from vtc.exchange import Session, Stream
from vtc.profiles import Facts, Planner, Settings, builtin_directory, load_profiles

NAMES = ["openai-chat", "anthropic-messages", "openai-responses"]
each = pytest.mark.parametrize("api", NAMES)


def exchange(api: str, **settings: Any) -> Session:
    (found,) = [one for one in APIS if one.name == api]
    body = chat.encode_json(
        SHAPES[api].request(stream=True, tools=declare_tools(api, dict.fromkeys(("write", "read"), FILE)))
    )
    facts = Facts(user_agent="Any/1", host="127.0.0.1", path=SHAPES[api].build_path(stream=True))
    return Session.open(found, body, facts, planner(**settings), "seed")


def calling(api: str, *calls: tuple[str, list[str]]) -> list[bytes]:
    """Encode the frames of a reply with some calls; the pieces of their arguments as given."""
    match api:
        case "openai-chat":
            frames = [chat.ROLE]
            for index, (name, pieces) in enumerate(calls):
                frames.append(chat.chunk({"tool_calls": [chat.native(index, id=f"c{index}", name=name, arguments="")]}))
                frames += [chat.chunk({"tool_calls": [chat.native(index, arguments=piece)]}) for piece in pieces]
            return [*frames, chat.chunk({}, "tool_calls"), chat.USED, chat.DONE]
        case "anthropic-messages":
            blocks = [
                messages.call_block(index, name, *pieces, id=f"t{index}") for index, (name, pieces) in enumerate(calls)
            ]
            return messages.make_stream(*blocks, stop_reason="tool_use")
    events = [
        responses.call_events(name, *pieces, id=f"fc_{index}", call_id=f"call_{index}")
        for index, (name, pieces) in enumerate(calls)
    ]
    return responses.make_stream(*events)


def list_calls(api: str, body: bytes) -> list[tuple[str, Any]]:
    readers: dict[str, Any] = {"openai-chat": chat.read, "anthropic-messages": messages.read}
    found: list[tuple[str, Any]] = readers.get(api, responses.read)(body).calls
    return found


def through(stream: Stream, frames: list[bytes]) -> list[bytes]:
    """Return the bytes sent for each frame, and at the end."""
    return [b"".join(stream.feed(frame)) for frame in frames] + [b"".join(stream.finish())]


_COMMA = re.compile(r",\s*([}\]])")
WRITE = ("write", ['{"file', 'Path": "a.py", ', '"content": "x = ', '\\"1\\"\\n', 'y = 2\\n"', "}"])


@each
def test_a_value_that_ends_in_one_special_token_again_and_again(api: str) -> None:
    """All tokens of a looping model are removed, in time that is linear in their number."""
    text = '{"filePath": "/a' + "</｜DSML｜parameter>" * 10_000 + '"}'
    frames = calling(api, ("read", [text[at : at + 200] for at in range(0, len(text), 200)]))
    body = b"".join(through(exchange(api).stream(), frames))
    assert list_calls(api, body) == [("read", {"filePath": "/a"})]


@each
def test_pieces_of_a_clean_call_leave_as_they_come(api: str) -> None:
    frames = calling(api, WRITE, WRITE)
    left = through(exchange(api).stream(), frames)
    assert b"".join(left) == b"".join(frames)
    late = [place for place, (frame, out) in enumerate(zip(frames, left, strict=False)) if frame not in out]
    assert all(b"y = 2" not in frames[place] and frames[place] != b"1" for place in late)
    assert len(late) <= 4 * 2  # the beginnings, until the first key is known, and a comma


@each
@pytest.mark.parametrize(
    ("pieces", "arguments", "repair"),
    [
        (['{"limit', '": "', "4", '2", "filePath": "a', '"}'], {"limit": 42, "filePath": "a"}, "typed:limit"),
        (['{"filePath": "a", "limit": "4', "2", '"}'], {"filePath": "a", "limit": 42}, "typed:limit"),
        (['{"tags": "[\\"x\\"', ', \\"y\\"]", ', '"limit": 1}'], {"tags": ["x", "y"], "limit": 1}, "typed:tags"),
        (['{"filePath": "a"', '}{"filePath": "a"}'], {"filePath": "a"}, "written-twice"),
        (['{"filePath": "a"', "}", "</tool_call>"], {"filePath": "a"}, "markup-around"),
        (['{"filePath": "a"', "}", "}"], {"filePath": "a"}, "extra-brace"),
        (['{"limit": 1, "file', 'Path": "a"'], {"filePath": "a", "limit": 1}, "json-cut"),
        (['{"filePath": "a" "lim', 'it": 1}'], {"filePath": "a", "limit": 1}, "json-missing-comma"),
        (['{"filePath": ', "Pura", '90"}'], {"filePath": "Pura90"}, "json-missing-quote"),
        (['{"limit": 1, "filePath": a', '"}'], {"filePath": "a", "limit": 1}, "json-missing-quote"),
        (["{}", '{"filePath"', ': "a"}'], {"filePath": "a"}, "empty-object"),
        (["{'filePath'", ": 'a'}"], {"filePath": "a"}, "python-literal"),
        (['{"input": {"file', 'Path": "a"}}'], {"filePath": "a"}, "arguments-key"),
    ],
)
def test_what_is_wrong_later_is_mended_all_the_same(
    api: str, pieces: list[str], arguments: dict[str, Any], repair: str
) -> None:
    one = exchange(api)
    body = b"".join(through(one.stream(), calling(api, ("read", pieces))))
    assert list_calls(api, body) == [("read", arguments)]
    assert [repair] == [name for call in one.report.calls for name in call["repairs"]]


@each
@pytest.mark.parametrize(
    "pieces",
    [
        ['{"filePath": "a"', ",}"],
        ['{"filePath": "a"', ",", "}"],
        ['{"filePath"', ': "a",', " \n", " }"],
        ['{"filePath"', ': "a",', "", "}", ""],
        ['{"filePath": "a", "tags": ["x"', ",", "]", "}"],
        ['{"filePath": "a", "tags"', ': ["x"],', "}"],
    ],
)
@pytest.mark.parametrize("others", [[], [WRITE]], ids=["alone", "before another"])
def test_a_trailing_comma_leaves_at_no_cut(api: str, pieces: list[str], others: list[Any]) -> None:
    one = exchange(api)
    body = b"".join(through(one.stream(), calling(api, ("read", pieces), *others)))
    name, arguments = list_calls(api, body)[0]
    assert (name, arguments) == ("read", json.loads(_COMMA.sub(r"\1", "".join(pieces))))
    assert [call for call, _ in list_calls(api, body)] == ["read", *(name for name, _ in others)]
    assert "json-trailing-comma" in {name for call in one.report.calls for name in call["repairs"]}
    assert one.report.refusals == []


@pytest.mark.parametrize(
    "pieces", [['{"filePath": "a",', "}"], ['{"filePath": "a"', ",", "}"], ['{"filePath": "a"', ",}"]]
)
def test_a_trailing_comma_leaves_not_where_the_finish_stands_in_its_frame(pieces: list[str]) -> None:
    *frames, _, used, done = calling("openai-chat", ("read", pieces[:-1]))
    end = chat.chunk({"tool_calls": [chat.native(0, arguments=pieces[-1])]}, "tool_calls")
    one = exchange("openai-chat")
    body = b"".join(through(one.stream(), [*frames, end, used, done]))
    assert list_calls("openai-chat", body) == [("read", {"filePath": "a"})]
    assert chat.read(body).finish_reason == "tool_calls"


@each
def test_frames_with_a_comma_leave_as_they_came_where_it_is_one(api: str) -> None:
    pieces = ['{"filePath": "a"', ",", " ", '"tags"', ': ["x",', '"y"', ",", '"z"], ', '"limit"', ": 1}"]
    frames = calling(api, ("read", pieces), WRITE)
    left = through(exchange(api).stream(), frames)
    assert b"".join(left) == b"".join(frames)
    assert len([out for out in left[:-1] if not out]) <= 5 + 3 * 2  # commas, and the beginnings of two calls


@each
@pytest.mark.parametrize("pieces", [['{"filePath": "a <', 'b"}'], ['{"filePath": "</', "<", 'b", "limit": 9', "0}"]])
def test_frames_that_end_like_a_marker_begins_leave_as_they_came_where_it_is_none(api: str, pieces: list[str]) -> None:
    frames = calling(api, ("read", pieces), WRITE)
    assert b"".join(through(exchange(api).stream(), frames)) == b"".join(frames)


@each
@pytest.mark.parametrize("begun", [[], ['{"filePath": "a", '], ['{"filePath": "a", "limit": "4']])
def test_a_long_piece_is_read_at_the_end_of_the_call_and_nothing_of_it_is_lost(api: str, begun: list[str]) -> None:
    """Parsing it as it arrives would block all other streams: one of 100,000 keys took a second."""
    rest = ", ".join(f'"k{number}": {number}' for number in range(5000)) + "}"
    pieces = [*begun, ('2", ' if len(begun[-1:]) and "limit" in begun[-1] else "" if begun else "{") + rest]
    one = exchange(api)
    (call,) = list_calls(api, b"".join(through(one.stream(), calling(api, ("read", pieces)))))
    expected = {"filePath": "a"} if begun else {}
    expected |= {"limit": 42} if "limit" in "".join(begun) else {}  # type: ignore[dict-item]
    assert call == ("read", expected | {f"k{number}": number for number in range(5000)})
    assert one.report.refusals == []


def test_what_stands_for_a_call_does_not_leave_before_text_that_is_undecided(tmp_path: Path) -> None:
    """A lone backtick can begin a code block; it was sent after the message about a later call."""
    policy = {"kind": "policy", "name": "mine", "match": {}, "guards": {"denied_tools": ["read"], "on_denied": "steer"}}
    (tmp_path / "mine.yaml").write_bytes(chat.encode_json(policy))
    strict = Planner(load_profiles([builtin_directory(), tmp_path]), Settings())
    body = chat.encode_json(SHAPES["openai-chat"].request(stream=True))
    (api,) = [one for one in APIS if one.name == "openai-chat"]
    stream = Session.open(api, body, Facts(user_agent="Any/1"), strict, "seed").stream()
    calls = [("read", ['{"filePath": "/a"}']), ("list_files", ['{"path": "."}'])]
    first, *frames = calling("openai-chat", *calls)
    found = chat.read(b"".join(through(stream, [first, *chat.make_text_chunks("`"), *frames])))
    assert found.content == "`\n\nThe tool `read` may not be used here, so the call was not carried out."
    assert found.calls == [("list_files", {"path": "."})]


@each
def test_what_mends_a_call_stands_before_the_next_one(api: str) -> None:
    """It was sent at the end of the reply, after the next call had begun."""
    frames = calling(api, ("read", ['{"filePath": "a', '\nb"', ', "limit": 1}']), WRITE)
    calls = list_calls(api, b"".join(through(exchange(api).stream(), frames)))
    assert calls == [("read", {"filePath": "a\nb", "limit": 1}), ("write", json.loads("".join(WRITE[1])))]


def test_text_after_a_long_call_that_waits_costs_no_more_than_after_a_short_one() -> None:
    def copies(size: int) -> int:
        """Count the values that are copied for text after a call in `size` pieces, which is buffered until its end."""
        count = 0

        def note(_: object, event: str, function: Any) -> None:
            nonlocal count
            count += event == "c_call" and function.__name__ == "replace"

        stream = exchange("openai-chat").stream()
        call = calling("openai-chat", ("read", ['{"unknown": "', *["x"] * size, '"}']))[:-3]
        *texts, last = chat.make_text_chunks("One ", "two ", "three ", "four ")
        for frame in [*call, *texts]:
            stream.feed(frame)
        sys.setprofile(note)
        try:
            stream.feed(last)
        finally:
            sys.setprofile(None)
        return count

    assert 0 < copies(200) == copies(20)


@each
def test_other_objects_in_the_arguments_are_calls_of_their_own(api: str) -> None:
    pieces = ['{"filePath": ', '"a"}', '{"filePath"', ': "b"}']
    body = b"".join(through(exchange(api).stream(), calling(api, ("read", pieces))))
    assert list_calls(api, body) == [("read", {"filePath": "a"}), ("read", {"filePath": "b"})]


@each
@pytest.mark.parametrize("last", [["{}"], ['{"filePath": "c"}'], ['{"file', 'Path": "c"', "}"]])
def test_other_objects_in_the_arguments_are_calls_before_those_that_come_later(api: str, last: list[str]) -> None:
    for pieces in (['{"filePath": "a"}', '{"filePath": "b"}'], ['{"filePath": "a"}{"filePath"', ': "b"}']):
        frames = calling(api, ("read", pieces), ("write", last), ("read", ['{"filePath": "d"}']))
        calls = list_calls(api, b"".join(through(exchange(api).stream(), frames)))
        later = [("write", json.loads("".join(last))), ("read", {"filePath": "d"})]
        assert calls == [("read", {"filePath": "a"}), ("read", {"filePath": "b"}), *later]


@each
def test_fault_in_what_has_left_is_told_and_the_rest_leaves_as_it_came(api: str) -> None:
    pieces = ['{"filePath": "a", ', '"limit": 1', ": 2", "}"]
    one = exchange(api)
    body = b"".join(through(one.stream(), calling(api, ("read", pieces))))
    assert [refusal["name"] for refusal in one.report.refusals] == ["read"]
    assert one.report.failures == []
    with pytest.raises(json.JSONDecodeError):
        list_calls(api, body)


@each
def test_a_call_that_waits_leaves_when_the_next_one_begins(api: str) -> None:
    waits = ("read", ["{}", '{"filePath": "a"}'])
    frames = calling(api, ("read", ['{"unknown": 1}']), WRITE)
    left = through(exchange(api).stream(), frames)
    whole = b"".join(left)
    assert [name for name, _ in list_calls(api, whole)] == ["read", "write"]
    until = next(place for place, frame in enumerate(frames) if b"y = 2" in frame)
    assert b"unknown" in b"".join(left[:until])
    body = b"".join(through(exchange(api).stream(), calling(api, waits, WRITE)))
    assert [name for name, _ in list_calls(api, body)] == ["read", "write"]


def _texts(arguments: dict[str, Any]) -> list[str]:
    return [arguments["filePath"], arguments.get("content", ""), *arguments.get("tags", ())]


VALUES = st.fixed_dictionaries(
    {"filePath": st.text(max_size=8)},
    optional={
        "content": st.text(max_size=30) | st.text("</1,a", max_size=8),
        "limit": st.integers(-5, 5_000),
        "tags": st.lists(st.text(max_size=5), max_size=3),
    },
)


@each
@given(data=st.data())
def test_joined_pieces_are_the_arguments_in_any_cut(api: str, data: st.DataObject) -> None:
    arguments = [data.draw(VALUES) for _ in range(data.draw(st.integers(1, 3)))]
    calls = []
    for one in arguments:
        text = json.dumps(one, ensure_ascii=data.draw(st.booleans()))
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        calls.append(("write", [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]))
    frames = calling(api, *calls)
    body = b"".join(through(exchange(api).stream(), frames))
    if not any(
        re.search("</?[|｜]", value) for one in arguments for value in _texts(one)
    ):  # more than one special token
        assert body == b"".join(frames)
    assert list_calls(api, body) == [("write", one) for one in arguments]
