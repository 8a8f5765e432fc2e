"""The plan of an exchange: a row for each client, model and setting with a different result."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.apis import chat
from vtc.apis.openai_chat import Request
from vtc.dialects import Description
from vtc.guards import Guards, Reactor, Then, When
from vtc.profiles import (
    Facts,
    Match,
    ModelProfile,
    Plan,
    Planner,
    Settings,
    Source,
    UnknownName,
    builtin_directory,
    load_profiles,
)
from vtc.profiles.schema import ReasoningTags
from vtc.profiles.schema import RequestChanges as Change

CLINE = "Cline/3.82.0"
DOCUMENTED = "# Tools\n\n## go\nDescription: Go.\nParameters:\n- a: (required) x\nUsage:\n<go>\n<a>x</a>\n</go>\n"
CALL = {"id": "a", "type": "function", "function": {"name": "go", "arguments": "{}"}}
HISTORY = [{"role": "assistant", "tool_calls": [CALL]}, {"role": "tool", "tool_call_id": "a", "content": "x"}]
PROMPTED = [{"role": "system", "content": DOCUMENTED}]


PROFILES = load_profiles([builtin_directory()])


def plan(agent: str = "", settings: dict[str, Any] | None = None, host: str = "", **fields: Any) -> Plan:
    request = Request(chat.encode_json(chat.request(**fields)))
    facts = Facts(user_agent=agent, model=request.model, host=host, body=request.fields)
    return Planner(PROFILES, Settings(**settings or {})).plan(facts, request)


def summarize_plan(found: Plan) -> dict[str, Any]:
    return {
        "read": [dialect.name for dialect in found.reading.dialects][:3],
        "write": found.protocol.write.name if found.protocol.write else None,
        "prompt_tools": found.protocol.prompt_tools,
        "promote": found.protocol.promote,
        "client_text": found.protocol.client_text.dialect.name if found.protocol.client_text else None,
        "tools": [tool.name for tool in found.protocol.tools],
    }


NATIVE = {"write": None, "prompt_tools": False, "promote": False, "client_text": None}
OFFERED = [tool["function"]["name"] for tool in chat.TOOLS]
LEFT_ALONE: dict[str, Any] = {**NATIVE, "read": []}
PROMPT = {"tools": "prompt"}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # native client, native model
        ({"model": "qwen2.5:7b"}, {**NATIVE, "read": ["hermes", "tools-tag", "bare-json"], "tools": OFFERED}),
        ({"model": "qwen2.5:7b", "tools": None}, {**LEFT_ALONE, "tools": []}),
        ({"model": "qwen2.5:7b", "tool_choice": "none"}, LEFT_ALONE),
        ({"model": "qwen2.5:7b", "messages": HISTORY}, {"write": None}),
        # native client, a model that is prompted
        (
            {"model": "qwen2.5:7b", "settings": PROMPT},
            {
                "read": ["hermes", "tools-tag", "bare-json"],
                "write": "hermes",
                "prompt_tools": True,
                "client_text": None,
            },
        ),
        ({"settings": PROMPT}, {"write": "tag", "prompt_tools": True}),
        ({"settings": {**PROMPT, "dialect": "invoke"}}, {"write": "invoke"}),
        ({"settings": PROMPT, "tools": None}, LEFT_ALONE),
        (
            {"settings": PROMPT, "tools": None, "messages": HISTORY},
            {"read": [], "write": "tag", "prompt_tools": False, "tools": []},
        ),
        (
            {"settings": PROMPT, "tool_choice": "none"},
            {"read": [], "write": "tag", "prompt_tools": False, "tools": OFFERED},
        ),
        ({"model": "qwen2.5:7b", "settings": {"dialect": "invoke"}}, {"write": None, "prompt_tools": False}),
        # text client
        ({"agent": CLINE, "tools": None}, {**LEFT_ALONE, "client_text": "cline"}),
        (
            {"agent": CLINE, "tools": None, "messages": PROMPTED},
            {"write": None, "client_text": "cline", "tools": ["go"]},
        ),
        (
            {"agent": CLINE, "tools": None, "messages": PROMPTED, "settings": PROMPT},
            {"write": "tag", "prompt_tools": True, "promote": False, "client_text": "cline"},
        ),
        (
            {"agent": CLINE, "tools": None, "messages": PROMPTED, "settings": {**PROMPT, "dialect": "cline"}},
            {"write": None, "prompt_tools": False, "client_text": "cline"},
        ),
        (
            {"agent": CLINE, "tools": None, "messages": PROMPTED, "settings": {"tools": "native"}},
            {"write": None, "promote": True, "client_text": "cline"},
        ),
        ({"agent": CLINE, "messages": PROMPTED}, {**NATIVE, "tools": OFFERED}),
        ({"agent": "own/1", "tools": None, "messages": PROMPTED}, {"client_text": "cline", "tools": ["go"]}),
        (
            {"agent": CLINE, "tools": None, "messages": PROMPTED, "settings": {"client_patterns": ()}},
            {**LEFT_ALONE, "tools": []},
        ),
        (
            {"agent": CLINE, "tools": None, "messages": PROMPTED, "settings": {"client": "opencode"}},
            {**LEFT_ALONE, "tools": []},
        ),
    ],
)
def test_decisions_of_a_plan(request_: dict[str, Any], expected: dict[str, Any]) -> None:
    found = summarize_plan(plan(**request_))
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        ({}, "the request has 3 tools; calls go back as `tool_calls`"),
        ({"tools": None}, "nothing is read: the request offers no tools"),
        ({"tool_choice": "none"}, "nothing is read: the request forbids calls"),
        ({}, "the model is not known by name: all dialects with markers of their own are read"),
        ({"model": "qwen3:8b"}, "model 'qwen3:8b' matches glob '*qwen3*' of profile qwen3 (built-in)"),
        ({"settings": {"model": "hermes"}}, "model hermes: named by the option vtc_model"),
        ({"settings": {"client": "opencode"}}, "client opencode: named by the option vtc_client"),
        ({"settings": {"client": "opencode"}}, "client profile opencode says tool_protocol: native"),
        ({"settings": PROMPT}, "the model knows no tools: conversation and tools written as tag"),
        ({"settings": PROMPT, "tool_choice": "none"}, "the model knows no tools: conversation written as tag"),
        (
            {"agent": CLINE, "tools": None},
            "user agent 'Cline/3.82.0' holds 'cline' and the request declares no tools: a text client",
        ),
        (
            {"agent": CLINE, "tools": None},
            "no tools are found in its prompt, so its text is left alone; the server's own calls become text",
        ),
        ({"tools": None, "messages": PROMPTED}, "the system prompt documents 1 tools: a text client"),
        ({"model": "qwen2.5:7b"}, "calls are read as hermes, tools-tag, bare-json or as any of 65 other dialects"),
    ],
)
def test_why(request_: dict[str, Any], reason: str) -> None:
    """Every decision has a line for people."""
    assert reason in plan(**request_).why


@pytest.mark.parametrize("agent", ["cLiNe", "my-kilo-thing", "RooCode/3"])
def test_patterns_are_parts_of_the_user_agent_in_any_case(agent: str) -> None:
    assert plan(agent, tools=None, messages=PROMPTED).protocol.client_text is not None


def test_a_long_user_agent_is_cut_short() -> None:
    why = plan("cline" + "x" * 5000, tools=None).why
    assert max(map(len, why)) < 300


# Values of profiles and settings


def plan_profile(settings: dict[str, Any] | None = None, *, profile: Any = (), **fields: Any) -> Plan:
    """Return a plan with a user's model profile that the request matches."""
    mine = ModelProfile(name="mine", match=Match(model=chat.MODEL), **dict(profile))
    profiles = replace(
        PROFILES,
        models={**PROFILES.models, "mine": mine},
        sources={**PROFILES.sources, ("model", "mine"): Source(Path("mine.yaml"), 1, builtin=False)},
    )
    request = Request(chat.encode_json(chat.request(**fields)))
    facts = Facts(model=request.model, body=request.fields)
    return Planner(profiles, Settings(**settings or {})).plan(facts, request)


@pytest.mark.parametrize(
    ("option", "of_profile", "lenient"),
    [
        ("auto", None, True),
        ("auto", True, True),
        ("auto", False, False),
        ("on", False, True),
        ("off", True, False),
    ],
)
def test_lenient(option: str, of_profile: bool | None, lenient: bool) -> None:
    """The option takes precedence over the model's profile, and that over the default."""
    assert plan_profile({"lenient": option}, profile={"lenient": of_profile}).reading.lenient == lenient


@pytest.mark.parametrize(
    ("of_profile", "fields", "most"),
    [
        (None, {}, None),
        (3, {}, 3),
        (3, {"parallel_tool_calls": False}, 1),
        (None, {"parallel_tool_calls": True}, None),
    ],
)
def test_max_calls(of_profile: int | None, fields: dict[str, Any], most: int | None) -> None:
    """The client's limit takes precedence over the profile's."""
    assert plan_profile(profile={"max_calls": of_profile}, **fields).protocol.max_calls == most


@pytest.mark.parametrize(
    ("settings", "profile", "prompted"),
    [
        ({}, {}, False),
        ({}, {"tools": "prompt"}, True),
        ({"tools": "native"}, {"tools": "prompt"}, False),
        ({"tools": "prompt"}, {"tools": "native"}, True),
    ],
)
def test_how_tools_reach_the_model(settings: dict[str, Any], profile: dict[str, Any], prompted: bool) -> None:
    assert plan_profile(settings, profile=profile).protocol.prompt_tools == prompted


def test_accepted_dialects_are_read() -> None:
    """Expected dialects are first, then all others; the dialect of the prompt counts if it is used."""
    profile = {"accept": ["hermes"], "dialect": "invoke"}
    read = [plan_profile(settings, profile=profile).reading.dialects for settings in ({}, PROMPT, {"dialect": "tag"})]
    names = [[dialect.name for dialect in one] for one in read]
    assert [one[:2] for one in names] == [["hermes", "json-array"], ["invoke", "hermes"], ["tag", "hermes"]]
    assert {len(one) for one in names} == {len(names[0])}
    assert len({*names[0]}) == len(names[0])


def test_a_tag_that_no_profile_expects_counts_at_the_end_of_a_reply_only() -> None:
    def tag(settings: dict[str, Any], **profile: Any) -> Description:
        return next(one for one in plan_profile(settings, profile=profile).reading.dialects if one.name == "tag")

    assert tag({}, accept=["hermes"]).ends_reply
    assert not tag({}, accept=["hermes", "tag"]).ends_reply
    assert not tag({"dialect": "tag"}, accept=["hermes"]).ends_reply
    assert not tag(PROMPT, accept=["hermes"], dialect="tag").ends_reply


def test_auto_is_every_dialect_with_markup_of_its_own() -> None:
    names = {dialect.name for dialect in plan_profile(profile={"accept": "auto"}).reading.dialects}
    known = load_profiles([builtin_directory()]).dialects
    assert names == {name for name, dialect in known.items() if dialect.rescued}
    assert "cline" in known.keys() - names


def test_bare_json_is_no_call_if_the_answer_is_json() -> None:
    asked = {"tools": [chat.tool("read", path="string")], "response_format": {"type": "json_object"}}
    names = {dialect.name for dialect in plan(**asked).reading.dialects}
    assert "hermes" in names
    assert names.isdisjoint({"bare-json", "json-array", "llama3"})
    (why,) = (one for one in plan(**asked).why if "JSON" in one)
    assert why == "the request asks for JSON: an object that is the whole reply is no call"
    prompted = plan(settings={**PROMPT, "dialect": "llama3"}, **asked)  # the prompt requested this format
    assert "llama3" in {dialect.name for dialect in prompted.reading.dialects}


def test_changes_of_the_request() -> None:
    profile = {"request": Change(set={"skip_special_tokens": False}, drop=("stream_options",))}
    found = plan_profile(profile=profile).stack
    assert (found.request.set, found.request.drop) == ({"skip_special_tokens": False}, ("stream_options",))


def test_needs_of_a_server_for_a_model() -> None:
    """Special tokens are requested only if calls are marked by some; the model's own profile takes precedence."""
    server = {"server": "vllm"}
    assert dict(plan_profile(server).stack.request.set) == {}
    assert dict(plan_profile(server, profile={"special_tokens": True}).stack.request.set) == {
        "skip_special_tokens": False
    }
    assert dict(plan_profile(profile={"special_tokens": True}).stack.request.set) == {}
    profile = {"special_tokens": True, "request": Change(set={"skip_special_tokens": True, "x": 1})}
    assert dict(plan_profile(server, profile=profile).stack.request.set) == {"skip_special_tokens": True, "x": 1}


def test_other_settings_are_copied() -> None:
    profile = {"unknown_tools": "drop", "reasoning": ReasoningTags(open="<a>", close="</a>", to="drop")}
    found = plan_profile({"max_call_bytes": 7}, profile=profile)
    reading = found.reading
    assert (found.stack.client.name, found.stack.model.name) == ("other", "mine")
    assert (reading.unknown_tools, reading.max_call_bytes) == ("drop", 7)
    assert (reading.thinking.tags[0], reading.thinking.to) == (("<a>", "</a>"), "drop")


def test_a_tool_is_also_read_by_the_name_that_a_reactor_renames() -> None:
    reactor = Reactor(name="r", when=When(tools="cat"), then=Then(rename_tool="read"))
    found = plan_profile(profile={"guards": Guards(reactors=(reactor,))})
    assert found.reading.tools.keys() == {*OFFERED, "cat"}
    assert [tool.name for tool in found.offered] == OFFERED


@pytest.mark.parametrize("setting", ["client", "model", "server", "dialect"])
def test_setting_names_an_existing_profile(setting: str) -> None:
    named: dict[str, Any] = {setting: "nobody"}
    with pytest.raises(UnknownName, match=f"there is no {setting}.* 'nobody'.*`vtc profiles` lists all") as refused:
        Planner(PROFILES, Settings(**named))
    assert refused.value.setting == setting


@pytest.mark.parametrize(("written", "expected"), [("read*", "read*"), (("read", "b"), ("read", "b"))])
def test_tools_that_a_model_profile_does_not_allow_are_withheld(written: Any, expected: Any, tmp_path: Path) -> None:
    globs = written if isinstance(written, str) else list(written)
    text = f"kind: model\nname: mine\nmatch: {{model: mine}}\nguards: {{allowed_tools: {globs!r}}}\n"
    (tmp_path / "mine.yaml").write_text(text, "utf-8")
    request = Request(chat.encode_json(chat.request(model="mine")))
    found = Planner(load_profiles([builtin_directory(), tmp_path]), Settings()).plan(Facts(model="mine"), request)
    assert [guards.allowed_tools for guards in found.stack.guards] == [expected]
    assert found.withheld == {"list_files", "write"}
    assert "not offered to the model: list_files, write" in found.why


def plan_policies(tmp_path: Path, *policies: dict[str, Any], **fields: Any) -> Plan:
    """Return a plan with policies in addition to the built-in profiles."""
    for number, policy in enumerate(policies):
        text = chat.encode_json({"kind": "policy", "name": f"p{number}", "match": {}, **policy})
        (tmp_path / f"{number}.yaml").write_bytes(text)
    request = Request(chat.encode_json(chat.request(**fields)))
    facts = Facts(model=request.model, body=request.fields)
    return Planner(load_profiles([builtin_directory(), tmp_path]), Settings()).plan(facts, request)


def test_policies_are_merged_and_the_last_decision_wins(tmp_path: Path) -> None:
    first = {
        "request": {"set": {"a": 1, "b": 1}, "drop": ["x"]},
        "retry": {"max": 2},
        "guards": {"denied_tools": "read"},
    }
    second = {"request": {"set": {"a": 2}}, "response": {"drop": ["y"]}, "retry": {"max": 3}, "priority": 1}
    third = {"guards": {"allowed_tools": ["write", "read"]}, "upstream_stream": "never", "priority": -1}
    other = {"match": {"model": "other"}, "response": {"drop": ["z"]}}
    found = plan_policies(tmp_path, first, second, third, other, stream=True)
    stack = found.stack
    assert (stack.request.set, stack.request.drop, stack.response_drop) == ({"a": 2, "b": 1}, ("x",), {"y"})
    assert stack.retry is not None
    assert (stack.retry.max, found.buffered) == (3, True)
    assert [guards.denied_tools for guards in stack.guards] == [(), "read"]
    assert found.withheld == {"read", "list_files"}
    assert "policy p0: every request matches" in found.why


@pytest.mark.parametrize(
    ("policy", "fields", "buffered"),
    [
        ({}, {"stream": True}, False),
        ({"upstream_stream": "never"}, {"stream": True}, True),
        ({"upstream_stream": "never"}, {"stream": False}, False),
        ({"upstream_stream": "never"}, {"stream": True, "tools": None}, False),
        ({"retry": {}}, {"stream": True}, True),
        ({"retry": {}}, {"stream": False}, False),
    ],
)
def test_whole_reply_is_requested_for_streamed_tools(
    policy: dict[str, Any], fields: dict[str, Any], buffered: bool, tmp_path: Path
) -> None:
    assert plan_policies(tmp_path, policy, **fields).buffered is buffered


@pytest.mark.parametrize(
    ("fields", "limits"),
    [({}, False), ({"parallel_tool_calls": False}, True), ({"tools": None, "parallel_tool_calls": False}, False)],
)
def test_limit_of_one_call_applies_to_native_calls_if_the_client_requires_it(
    fields: dict[str, Any], limits: bool
) -> None:
    assert plan(**fields).protocol.limits_native is limits
