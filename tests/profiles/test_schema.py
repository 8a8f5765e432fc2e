"""Valid keys of a profile file, and their defaults."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from vtc.profiles import ClientProfile, Match, ModelProfile, ServerProfile
from vtc.profiles.schema import ReasoningTags


def model(**fields: Any) -> ModelProfile:
    return msgspec.convert({"kind": "model", "name": "m", "match": {}, **fields}, ModelProfile)


def test_model_without_keys_accepts_native_tools_and_every_framed_dialect() -> None:
    profile = model()
    assert (profile.tools, profile.accept, profile.dialect) == ("native", "auto", "tag")
    assert (profile.lenient, profile.max_calls, profile.unknown_tools) == (None, None, "allow")
    assert profile.reasoning is None
    assert (profile.request.set, profile.request.drop) == ({}, ())


def test_client_without_keys_is_judged_by_its_request() -> None:
    profile = msgspec.convert({"kind": "client", "name": "c", "match": {}}, ClientProfile)
    assert (profile.tool_protocol, profile.dialect) == ("auto", None)


def test_reasoning_is_in_think_tags_by_default() -> None:
    assert model(reasoning={}).reasoning == ReasoningTags(
        open="<think>", close="</think>", prefilled=False, to="reasoning_content"
    )


def test_a_test_takes_one_glob_or_several() -> None:
    assert model(match={"model": "a", "header": {"x": "b"}}).match == Match(model="a", header={"x": "b"})
    assert model(match={"model": ["a"], "body": {"x": ["b", "c"]}}).match == Match(model=("a",), body={"x": ("b", "c")})


@pytest.mark.parametrize(
    "fields",
    [
        {"guard": {}},
        {"match": {"models": "x"}},
        {"match": {"model": []}},
        {"tools": "both"},
        {"unknown_tools": "maybe"},
        {"accept": "hermes"},
        {"reasoning": {"close": ""}},
        {"reasoning": {"to": "nowhere"}},
        {"request": {"remove": []}},
        {"max_calls": 0},
        {"name": ""},
        {"lenient": "auto"},
    ],
)
def test_inconsistent_profile_is_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(msgspec.ValidationError):
        model(**fields)


def test_profiles_cannot_be_changed_once_loaded() -> None:
    with pytest.raises(AttributeError):
        model().tools = "prompt"  # type: ignore[misc]


def test_an_error_that_holds_a_reply_has_a_pattern_that_is_one() -> None:
    fields = {"status": 500, "path": "error.message", "after": "at pos ("}
    with pytest.raises(msgspec.ValidationError, match=r"after: 'at pos \(' is not a regular expression"):
        msgspec.convert({"kind": "server", "name": "s", "match": {}, "errors": [fields]}, ServerProfile)


@pytest.mark.parametrize(
    ("host", "is_one_owners"),
    [
        ("api.example.com", True),
        ("127.0.0.1:8000", True),
        ("::1", True),
        ("*.example.com", True),
        ("*.openai.azure.com:443", True),
        (["api.example.com", "*.com"], False),
        ("*", False),
        ("*:11434", False),
        ("*vllm*", False),
        ("api.*", False),
        ("ap[ij].example.com", False),
        ([], False),
    ],
)
def test_a_key_of_the_environment_is_for_hosts_of_one_owner(host: Any, is_one_owners: bool) -> None:
    """A glob that matches any host would send the key to any owner."""
    fields = {"name": "s", "match": {"host": host} if host else {}, "key_env": "LAB_KEY"}
    if is_one_owners:
        assert msgspec.convert(fields, ServerProfile).lends
        return
    with pytest.raises(msgspec.ValidationError, match=r"key_env: match\.host must say whose key it is"):
        msgspec.convert(fields, ServerProfile)


def test_key_in_place_of_a_variable_name_is_reported_and_hidden() -> None:
    fields = {"name": "s", "match": {"host": "api.example.com"}, "key_env": "sk-canary-0f1e2d"}
    with pytest.raises(msgspec.ValidationError, match="must be the name of a variable") as raised:
        msgspec.convert(fields, ServerProfile)
    assert "canary" not in str(raised.value)
