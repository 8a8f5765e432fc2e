"""Credentials are removed, and nothing else is."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from vtc.scrub import SECRET, collect_secrets, escape_invisible, format_exception, scrub_data, scrub_text


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer abcdefgh12345",
        "curl -H 'authorization: Basic dXNlcjpwYXNz'",
        "key sk-proj-abcdef0123456789",
        "ghp_" + "a1" * 18,
        "AKIA" + "ABCD" * 4,
        "AIza" + "x1" * 18,
        "hf_" + "aB3" * 8,
        "xoxb-123456-abcdef",
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.sflKxwRJSMeKKF2QT4",
        "https://x.example/v1?api_key=abcdef&b=1",
        "https://user:hunter22@x.example/",
        '{"api_key": "abcdef"}',
        r"{\"password\": \"abcdef\"}",
        "AWS_SECRET_ACCESS_KEY=abcdef",
        "OPENAI_API_KEY='abcdef'",
        "Cookie: session=abcdef",
        "-----BEGIN RSA PRIVATE KEY-----\nabcdef\n-----END RSA PRIVATE KEY-----",
        "-----BEGIN PRIVATE KEY-----\nabcdef",
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nabcdef\n-----END PGP PRIVATE KEY BLOCK-----",
        "GITHUB_TOKEN=abcdefgh",
        "token: abcdefgh",
        "https://hooks.slack.com/services/T0123/B0123/abcdefabcdef",
        "SG." + "abcdef1" * 3 + "." + "abcdef2" * 6,
        "DefaultEndpointsProtocol=https;AccountName=x;AccountKey=abcdef+/abcdef==",
        "ya29.abcdefghijklmnopqrs",
        "xai-abcdefghijklmnopqrs",
        "pplx-abcdefghijklmnopqrs",
        '{"password": "hunter22, abcdef; (x) abcdef"}',
        r"{\"password\": \"hunter22, abcdef\", \"x\": 1}",
        "DB_PASS=abcdef",
        "passphrase: abcdef",
        '"private_key": "abcdef"',
        "whsec_abcdefghijklmnopqrs",
        "dop_v1_" + "abcdef12" * 8,
        "pypi-abcdefghijklmnopqrs",
        "123456789:AA" + "abcdef1" * 5,
        "MTIzNDU2Nzg5MDEyMzQ1Njc4.abcdef.abcdefghijklmnopqrstuvwxyz0",
        "https://discord.com/api/webhooks/123456/abcdefghijklmnopqrs",
        "machine x.example login me password abcdef",
        "https://x.example/blob?sv=1&sig=abcdef%2F",
    ],
)
def test_secrets_are_removed(text: str) -> None:
    found = scrub_text(text)
    assert SECRET in found
    for part in ("abcdef", "hunter22", "dXNl", "a1a1", "ABCDABCD", "x1x1", "aB3a", "sflK"):
        assert part not in found
    assert scrub_text(found) == found


@pytest.mark.parametrize(
    "text",
    [
        "Ask the task-force to disk-check it; a risk-averse bearer of news.",
        "def login(user: str, password: str) -> None: ...",
        "call_6f9dd9df4e9d598b012fa3f8 and 5f0c1ab2-0000-4000-8000-000000000000",
        "http://127.0.0.1:8080/v1/chat/completions?stream=true",
        "the password is asked for; tokens: 512, max_tokens=512",
        "Unexpected token; three tokens: a token is [secret]",
        '{"password": "string", "token": "", "secret": null, "pwd": {"type": "string"}}',
        "the signal=5, the compass: north, a keyboard = new, passed: 5",
        "<tool_call>\n<function=read_file>\n<parameter=path>\na.txt\n</parameter>\n</function>\n</tool_call>",
    ],
)
def test_other_text_is_unchanged(text: str) -> None:
    assert scrub_text(text) == text


def test_the_rest_of_the_text_stays() -> None:
    assert scrub_text('{"api_key": "abcdef", "model": "m"}') == '{"api_key": "[secret]", "model": "m"}'
    assert scrub_text("https://x.example/v1?api_key=abcdef&b=1") == "https://x.example/v1?api_key=[secret]&b=1"


def test_secret_of_a_request_is_known_from_any_place() -> None:
    known = collect_secrets(
        {"Authorization": "Bearer open-sesame", "Cookie": "a=first-one; b=second", "accept": "application/json"}
    )
    assert set(known) >= {"open-sesame", "first-one", "second"}
    assert (
        scrub_text("said open-sesame to second, application/json", known)
        == "said [secret] to [secret], application/json"
    )


KEY = "Ab1+/9=zz&Xy"
FORMS = ("Ab1+/9=zz&Xy", "Ab1%2B%2F9%3Dzz%26Xy", "Ab1%2b%2f9%3dzz%26Xy", "Ab1%2B/9%3Dzz%26Xy", "Ab1+/9=zz&amp;Xy")


@pytest.mark.parametrize(
    "name",
    [
        *("Authorization", "Proxy-Authorization", "x-api-key", "api-key", "x-goog-api-key", "x-litellm-api-key"),
        *("x-goog-iam-authorization-token", "X-Amz-Security-Token", "Ocp-Apim-Subscription-Key", "Helicone-Auth"),
        *("CF-Access-Client-Secret", "CF-Access-JWT-Assertion", "X-Auth-Token", "Set-Cookie", "x-password"),
    ],
)
def test_a_credential_is_known_by_the_name_of_its_header_in_each_form(name: str) -> None:
    known = collect_secrets({name: KEY})
    assert [scrub_text(f"said {form}.", known) for form in FORMS] == [f"said {SECRET}."] * len(FORMS)


@pytest.mark.parametrize(
    "name", ["key", "KEY", "api-key", "api_key", "%6bey", "access_token", "X-Amz-Signature", "sig"]
)
@pytest.mark.parametrize("written", FORMS[1:4])
def test_a_credential_of_the_query_is_known_in_each_form(name: str, written: str) -> None:
    known = collect_secrets({}, f"alt=sse&{name}={written}&x=plain-value")
    assert [scrub_text(f"said {form}, plain-value.", known) for form in FORMS] == [f"said {SECRET}, plain-value."] * 5


@pytest.mark.parametrize(
    "body",
    [
        {"api_key": KEY},
        {"extra_headers": {"Authorization": f"Bearer {KEY}"}},
        {"tools": [{"type": "mcp", "authorization": KEY}]},
        {"mcp_servers": [{"url": "x", "authorization_token": KEY}]},
    ],
)
def test_a_credential_of_the_body_is_known(body: Any) -> None:
    assert scrub_text(f"said {KEY}.", collect_secrets({}, "", body)) == f"said {SECRET}."


@pytest.mark.parametrize(
    ("known", "text", "expected"),
    [
        ("abcdefgh", "in sk-proj-abcdefghijklmnop.", "in [secret]."),
        ("Ab1;9=zz", "key=Ab1;9=zz.", "key=[secret]."),
        ("sk-proj-abcdefgh/xyz", "key: 'sk-proj-abcdefgh/xyz'", "key: '[secret]'"),
        ("sk-proj-abcdefgh/xyz", "in sk-proj-abcdefgh/xyz.", "in [secret]."),
    ],
)
def test_secret_inside_another_is_removed_completely(known: str, text: str, expected: str) -> None:
    assert scrub_text(text, [known]) == expected


def test_other_value_is_no_credential() -> None:
    """Content of messages, schemas of tools, and cache keys of prompts are no credentials."""
    tool = {"type": "function", "function": {"name": "read", "parameters": {"properties": {"key": {"default": KEY}}}}}
    message = {"role": "user", "content": KEY, "key": KEY}
    body = {
        "messages": [message],
        "input": [message],
        "contents": [message],
        "tools": [tool],
        "prompt_cache_key": KEY,
        "n": 1,
    }
    headers = {"accept": KEY, "idempotency-key": KEY, "user-agent": KEY, "sec-websocket-key": KEY}
    assert collect_secrets(headers, f"alt={KEY}&max_tokens={KEY}", body) == ()


def test_the_password_of_a_basic_login_is_known() -> None:
    known = collect_secrets({"authorization": f"Basic {b64encode(b'me:open-sesame').decode()}"})
    assert scrub_text("no user with open-sesame", known) == "no user with [secret]"


def test_remainder_of_a_truncated_secret_is_removed() -> None:
    known = ("open-sesame-and-more",)
    assert (
        scrub_text("said open-sesame-a, open-sesame-and-more and open-ses", known)
        == "said [secret], [secret] and [secret]"
    )
    assert scrub_text("open-se", known) == "open-se"


def test_key_without_information_is_not_searched() -> None:
    """Many clients send `none` to a server that requires no key."""
    assert collect_secrets({"authorization": "Bearer none"}) == ("Bearer none",)


def test_plain_data() -> None:
    data = {"a": ["sk-abcdefgh", 5, None, {"b": "x sk-abcdefgh"}], "c": True}
    assert scrub_data(data) == {"a": ["[secret]", 5, None, {"b": "x [secret]"}], "c": True}


def test_control_characters_are_escaped_and_nothing_else() -> None:
    assert escape_invisible({"a": ["x\n\x1b[1m\u2028", 1]}) == {"a": [r"x\n\x1b[1m\u2028", 1]}
    assert escape_invisible("é 😀 a-b\\ 日本語 \u00e4 ±") == "é 😀 a-b\\ 日本語 \u00e4 ±"


@pytest.mark.parametrize("code", [0xAD, 0x34F, 0x200B, 0x2065, 0x3164, 0xFE0F, 0xFEFF, 0xE0001, 0xE0041, 0xE0100])
def test_a_character_that_no_one_sees_is_escaped(code: int) -> None:
    assert escape_invisible(f"a{chr(code)}b") == f"a{chr(code).encode('unicode_escape').decode()}b"


def test_error_is_reported_with_its_traceback_without_keys_and_line_breaks() -> None:
    try:
        raise ValueError("sk-abcdefghijkl\nFORGED")
    except ValueError as error:
        *trace, last = format_exception(error).splitlines()
    assert "test_scrub.py" in "".join(trace)
    assert last == rf"ValueError: {SECRET}\nFORGED"
