"""The profile that a request gets: built-in ones by the names that hosts use, then each rule."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from vtc.profiles import ClientProfile, Facts, Match, PolicyProfile, Profiles, Source, builtin_directory, load_profiles
from vtc.profiles.matching import choose_best, list_matching


@pytest.fixture(scope="module")
def builtin() -> Profiles:
    return load_profiles([builtin_directory()])


@pytest.mark.parametrize(
    ("model", "profile"),
    [
        ("Qwen/Qwen2.5-7B-Instruct", "qwen2.5"),
        ("Qwen/Qwen2.5-Coder-32B-Instruct-AWQ", "qwen2.5"),
        ("qwen2.5-coder:7b", "qwen2.5"),
        ("qwen/qwen-2.5-72b-instruct", "qwen2.5"),
        ("accounts/fireworks/models/qwen2p5-72b-instruct", "qwen2.5"),
        ("Qwen/Qwen3-8B", "qwen3"),
        ("Qwen/Qwen3-30B-A3B-Thinking-2507", "qwen3-thinking"),
        ("qwen3:8b", "qwen3"),
        ("qwen/qwen3-235b-a22b", "qwen3"),
        ("qwen-3-32b", "qwen3"),
        ("Qwen/Qwen3-Coder-30B-A3B-Instruct", "qwen3-coder"),
        ("qwen3-coder:30b", "qwen3-coder"),
        ("qwen3-coder-plus", "qwen3-coder"),
        ("qwen/qwen3-coder:free", "qwen3-coder"),
        ("qwen-3-coder-480b", "qwen3-coder"),
        ("Qwen/Qwen3.5-35B-A3B", "qwen3.5"),
        ("NousResearch/Hermes-3-Llama-3.1-8B", "hermes"),
        ("NousResearch/Hermes-2-Pro-Llama-3-8B", "hermes"),
        ("hermes3:8b", "hermes"),
        ("nousresearch/hermes-4-70b", "hermes"),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-32B", None),
        ("gpt-5", "gpt-5"),
        ("", None),
    ],
)
def test_models_by_the_names_that_hosts_give(builtin: Profiles, model: str, profile: str | None) -> None:
    choice = choose_best(builtin.models, Facts(model=model), builtin.sources)
    assert (choice.profile and choice.profile.name) == profile


@pytest.mark.parametrize(
    ("host", "wins"),
    [("api.openai.com", True), ("*.openai.com", True), ("*", False), ("*openai*", False)],
)
def test_a_server_profile_of_ones_own_that_names_the_host_wins_over_those_built_in(
    host: str, wins: bool, tmp_path: Path
) -> None:
    """It also takes precedence over a profile for some of the host's models, which has more conditions."""
    (tmp_path / "own.yaml").write_text(f"{{kind: server, name: own, match: {{host: '{host}'}}}}")
    profiles = load_profiles([builtin_directory(), tmp_path])
    facts = Facts(host="api.openai.com", port=443, model="gpt-5-mini")
    choice = choose_best(profiles.servers, facts, profiles.sources)
    assert choice.profile is not None
    assert (choice.profile.name == "own") == wins
    assert any("own is your own for this host" in line for line in choice.why) == wins


OPENCLAW = "You are a personal assistant running inside OpenClaw.\n\n## Tooling\n"
HERMES = "You are Hermes Agent, an intelligent AI assistant created by Nous Research. You are helpful."


@pytest.mark.parametrize(
    ("facts", "profile"),
    [
        (Facts(user_agent="opencode/1.18.33 ai-sdk/provider-utils/4.0.23 runtime/bun/1.3.14"), "opencode"),
        (Facts(user_agent="OpenAI/Python 2.54.0"), "openai-sdk"),
        (Facts(user_agent="OpenAI/JS 5.23.2", body={"messages": []}), "openai-sdk"),
        (Facts(user_agent="AsyncOpenAI/Python 2.54.0"), "openai-sdk"),
        (Facts(user_agent="google-genai-sdk/1.46.0 gl-python/3.12.1"), "gemini-sdk"),
        (Facts(user_agent="GeminiCLI/0.61.0/gemini-3-pro (linux; x64; terminal)"), "gemini-cli"),
        (Facts(user_agent="curl/8.5.0"), "curl"),
        (Facts(user_agent="python-httpx/0.28.1"), "httpx"),
        (Facts(user_agent="python-requests/2.32.5"), "requests"),
        (Facts(user_agent="node"), "other"),
        (Facts(), "other"),
        (
            Facts(user_agent="OpenAI/JS 5.23.2", body={"messages": [{"role": "system", "content": OPENCLAW}]}),
            "openclaw",
        ),
        (Facts(body={"messages": [{"content": [{"type": "text", "text": OPENCLAW}]}]}), "openclaw"),
        (Facts(body={"messages": [{"content": "Hello"}, {"content": OPENCLAW}]}), "other"),
        (Facts(user_agent="OpenAI/Python 2.54.0", body={"messages": [{"content": HERMES}]}), "hermes-agent"),
    ],
)
def test_clients_are_matched_by_their_requests(builtin: Profiles, facts: Facts, profile: str) -> None:
    choice = choose_best(builtin.clients, facts, builtin.sources)
    assert choice.profile is not None
    assert choice.profile.name == profile


def choose(facts: Facts, *profiles: ClientProfile, own: str = "") -> tuple[str | None, tuple[str, ...]]:
    """Return the winner's name and the reasons; `own` names the profile of the user, at line 3 of `my.yaml`."""
    sources = {
        ("client", profile.name): Source(Path("my.yaml"), 3, builtin=profile.name != own) for profile in profiles
    }
    choice = choose_best({profile.name: profile for profile in profiles}, facts, sources)
    return choice.profile.name if choice.profile else None, (*choice.why, *choice.others)


def client(name: str, priority: int = 0, **match: Any) -> ClientProfile:
    return ClientProfile(name=name, priority=priority, match=Match(**match))


@pytest.mark.parametrize(
    ("match", "facts", "holds"),
    [
        ({"model": "*QWEN*"}, Facts(model="a/Qwen"), True),
        ({"model": "qwen"}, Facts(model="a/qwen"), False),
        ({"model": "q?en[23]"}, Facts(model="qwen2"), True),
        ({"model": "q?en[!23]"}, Facts(model="qwen2"), False),
        ({"model": ("x", "q*")}, Facts(model="qwen"), True),
        ({"model": "*"}, Facts(), True),
        ({"model": "q.en"}, Facts(model="qwen"), False),
        ({"model": "q*", "host": "*.local"}, Facts(model="qwen", host="gpu.local"), True),
        ({"model": "q*", "host": "*.local"}, Facts(model="qwen", host="example.com"), False),
        ({"path": "/v1/chat/*"}, Facts(path="/v1/chat/completions?key=x"), True),
        ({"path": "*x"}, Facts(path="/v1/chat/completions?key=x"), False),
        ({"header": {"X-Title": "kilo*"}}, Facts(headers={"x-title": "Kilo Code"}), True),
        ({"header": {"x-title": "*"}}, Facts(), False),
        ({"header": {"x-title": "*", "x-b": "c"}}, Facts(headers={"x-title": "a"}), False),
        ({"body": {"stream": "true"}}, Facts(body={"stream": True}), True),
        ({"body": {"n": "2"}}, Facts(body={"n": 2}), True),
        ({"body": {"a.b": "*"}}, Facts(body={"a": {"b": None}}), False),
        ({"body": {"a.b": "*"}}, Facts(body={"a": {}}), False),
        ({"body": {"a.b": "*"}}, Facts(body={"a": "b"}), False),
        ({"body": {"a": "*"}}, Facts(body=None), False),
        ({"body": {"a.1": "y"}}, Facts(body={"a": ["x", "y"]}), True),
        ({"body": {"a.-1": "y"}}, Facts(body={"a": ["x", "y"]}), True),
        ({"body": {"a.2": "*"}}, Facts(body={"a": ["x", "y"]}), False),
        ({"body": {"a.x": "*"}}, Facts(body={"a": ["x", "y"]}), False),
        ({"body": {"a.*.b": "y"}}, Facts(body={"a": [{"b": "x"}, {"b": "y"}]}), True),
        ({"body": {"a.*": "y"}}, Facts(body={"a": {"b": "x", "c": "y"}}), True),
        ({"body": {"a": "y"}}, Facts(body={"a": [{"b": ["x", {"c": "y"}]}]}), True),
        ({"body": {"a": "one*three"}}, Facts(body={"a": "one\ntwo\nthree"}), True),
        ({}, Facts(), True),
    ],
)
def test_a_test(match: dict[str, Any], facts: Facts, holds: bool) -> None:
    name, _ = choose(facts, client("x", **match))
    assert name == ("x" if holds else None)


FACTS = Facts(model="Qwen/Qwen2.5-7B", host="localhost", headers={"authorization": "Bearer secret"})


@pytest.mark.parametrize(
    ("profiles", "winner", "reason"),
    [
        (
            [client("long", model="*qwen2.5-7b*"), client("two", model="*", host="*")],
            "two",
            "model 'Qwen/Qwen2.5-7B' matches glob '*qwen2.5-7b*' of profile long (built-in) too, "
            "but two has more tests (2 to 1)",
        ),
        (
            [client("short", model="*qwen*", priority=9), client("long", model=("*", "*qwen2.5*"))],
            "long",
            "model 'Qwen/Qwen2.5-7B' matches glob '*qwen*' of profile short (built-in) too, "
            "but long is more specific (7 literal characters to 4)",
        ),
        (
            [client("a", model="*qwen*"), client("b", model="*QWEN*", priority=1)],
            "b",
            "model 'Qwen/Qwen2.5-7B' matches glob '*qwen*' of profile a (built-in) too, "
            "but b has the higher priority (1 to 0)",
        ),
        (
            [client("a", model="*qwen*"), client("own", model="*QWEN*")],
            "own",
            "model 'Qwen/Qwen2.5-7B' matches glob '*qwen*' of profile a (built-in) too, but own is your own",
        ),
        (
            [client("b", model="*qwen*"), client("a", model="*QWEN*")],
            "a",
            "model 'Qwen/Qwen2.5-7B' matches glob '*qwen*' of profile b (built-in) too, but a comes first by name",
        ),
        (
            [client("any"), client("star", model="*")],
            "star",
            "every request matches the empty `match` of profile any (built-in) too, but star has more tests (1 to 0)",
        ),
    ],
)
def test_most_specific_profile_wins_with_a_reason(profiles: list[ClientProfile], winner: str, reason: str) -> None:
    for order in (profiles, profiles[::-1]):
        name, why = choose(FACTS, *order, own="own")
        assert name == winner
        assert why[1:] == (reason,)


def test_a_set_in_a_glob_is_not_literal() -> None:
    name, _ = choose(FACTS, client("set", model="*[0-9].[0-9]-[0-9]b"), client("word", model="*qwen*"))
    assert name == "word"


def test_why_names_the_glob_that_matched_and_the_profile() -> None:
    _, why = choose(
        FACTS,
        client("mine", model=["*", "*qwen2.5*", "*qwen*"], host="localhost"),
        client("other", model="*llama*"),
        client("keyed", header={"Authorization": "Bearer other"}),
        client("headed", header={"X-Title": "*"}),
        own="mine",
    )
    assert why == (
        "model 'Qwen/Qwen2.5-7B' matches glob '*qwen2.5*' and host 'localhost' matches glob 'localhost' "
        "of profile mine (my.yaml:3)",
        "profile other (built-in) does not match: model 'Qwen/Qwen2.5-7B' matches none of '*llama*'",
        "profile keyed (built-in) does not match: header 'Authorization' matches none of 'Bearer other'",
        "profile headed (built-in) does not match: header 'X-Title' is absent",
    )


def test_why_shows_nothing_of_headers_and_body() -> None:
    facts = Facts(path="/x?key=secret", headers={"authorization": "secret"}, body={"user": "secret"})
    globs: dict[str, Any] = {"header": {"authorization": "s*"}, "body": {"user": "s*"}, "path": "/x"}
    name, why = choose(facts, client("a", **globs), client("b", body={"user": "x"}), client("c", path="/y"))
    assert name == "a"
    assert "secret" not in "".join(why)


def test_no_profiles() -> None:
    assert choose(FACTS) == (None, ())


def test_every_policy_that_matches_in_the_order_of_priorities() -> None:
    policies = [
        PolicyProfile(name="last", match=Match(), priority=1),
        PolicyProfile(name="b", match=Match(user_agent="cl*", model="*")),
        PolicyProfile(name="a", match=Match(user_agent="cl*")),
        PolicyProfile(name="none", match=Match(user_agent="cl*", host="x")),
    ]
    found = list_matching({policy.name: policy for policy in policies}, Facts(user_agent="Cline/3", model="m"))
    assert [(policy.name, why) for policy, why in found] == [
        ("a", "user agent 'Cline/3' matches glob 'cl*'"),
        ("b", "user agent 'Cline/3' matches glob 'cl*' and model 'm' matches glob '*'"),
        ("last", "every request matches"),
    ]


# The owner of a request

HEADERS_OF_KEYS = (
    *("authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization", "x-litellm-api-key"),
    *("x-portkey-api-key", "ocp-apim-subscription-key", "x-amz-security-token", "x-goog-iam-authorization-token"),
    *("cf-access-client-secret", "cf-access-jwt-assertion", "x-auth-token", "helicone-auth", "x-signature"),
)
DIFFERENT = {
    **{name: ({name: "of-alice"}, {name: "of-bob"}) for name in HEADERS_OF_KEYS},
    "two headers": ({"x-api-key": "same"}, {"api-key": "same"}),
    "none": ({"x-api-key": "of-alice"}, {}),
    "one cookie of two": ({"cookie": "theme=dark; session=a"}, {"cookie": "theme=dark; session=b"}),
    "a session of a load balancer": (
        {"cookie": "AWSELBAuthSessionCookie-0=a"},
        {"cookie": "AWSELBAuthSessionCookie-0=b"},
    ),
    "parts of one": ({"authorization": "OAuth k=a, oauth_nonce=1"}, {"authorization": "OAuth k=b, oauth_nonce=1"}),
    "a token that ends as a name": ({"authorization": "Bearer aXnonce=="}, {"authorization": "Bearer bXnonce=="}),
    "a token alone that ends so": ({"x-api-key": "anonce="}, {}),
}
"""Headers of two clients, by their difference."""
SAME = {
    **{
        name: ({"cookie": f"session=a; {name}=1"}, {"cookie": f"{name}=2; session=a"})
        for name in ("__cf_bm", "_cfuvid", "cf_clearance", "AWSALB", "AWSALBCORS", "GCLB", "ARRAffinitySameSite")
    },
    "a first cookie": ({}, {"cookie": "__cf_bm=1; _cfuvid=2"}),
    "two, over HTTP/2": ({"cookie": "session=a; __cf_bm=1"}, {"cookie": "__cf_bm=2, session=a"}),
    "a nonce": ({"authorization": "OAuth k=a, oauth_nonce=1"}, {"authorization": "OAuth k=a, oauth_nonce=2"}),
    "a time": ({"cookie": "session=a; x-timestamp=1"}, {"cookie": "session=a; x-timestamp=2"}),
    "a number": ({"x-request-id": "1", "x-nonce": "1", "idempotency-key": "1"}, {"cookie": "request_id=3"}),
}
"""Headers of two requests of one client, by their difference."""


@pytest.mark.parametrize(
    ("headers", "is_same"),
    [pytest.param(pair, cases is SAME, id=name) for cases in (DIFFERENT, SAME) for name, pair in cases.items()],
)
def test_clients_differ_by_each_credential_and_by_nothing_that_changes_within_a_conversation(
    headers: tuple[dict[str, str], dict[str, str]], is_same: bool
) -> None:
    one, other = (Facts(headers=one) for one in headers)
    assert (one.whose == other.whose, one.credentials == other.credentials) == (is_same, is_same)


@pytest.mark.parametrize(
    ("query", "other", "is_same"),
    [
        ("key=a", "key=b", False),
        ("alt=sse&api_key=a", "api-key=a", False),
        ("sig=a&x=1", "x=1", False),
        ("key=a&alt=sse&nonce=1&request_id=1", "alt=json&key=a&nonce=2&timestamp=3", True),
        ("key=", "", True),
    ],
)
def test_credentials_in_a_query_distinguish_clients(query: str, other: str, is_same: bool) -> None:
    assert (Facts(query=query).credentials == Facts(query=other).credentials) == is_same
