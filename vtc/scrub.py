"""Secrets taken out of text that is kept: reports, comments, logs and saved cases.

What is known to be secret (what the request itself carries as a credential) goes wherever it stands; what only looks
like a secret goes by its form (the published prefixes of API keys, JSON Web Tokens, private keys) or by the name before
it (`api_key=…`, `"password": "…"`). Too much taken out is a blemish, too little a leak.
"""

from __future__ import annotations

import html
import json
import re
import traceback
import unicodedata
from base64 import b64decode
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile
from typing import Any
from urllib.parse import quote, quote_plus, unquote, unquote_plus

SECRET = "[secret]"
"""Text in the place of a secret."""

CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization")
"""Headers by which a client says who it is."""
_CREDENTIAL = (
    *("key", "token", "auth", "authorization", "authorisation", "authentication", "secret", "password", "passwd"),
    *("passphrase", "credential", "credentials", "cookie", "assertion", "signature", "sig", "jwt"),
)
"""Ends of names of headers, query parameters and body fields that hold a credential."""
_NO_CREDENTIAL = ("cachekey", "idempotencykey", "websocketkey")
"""Ends of such names that hold none, without low lines and hyphens."""
_CONVERSATION = frozenset(
    ("messages", "contents", "input", "prompt", "system", "instructions", "systemInstruction", "system_instruction")
)
_SCHEMAS = frozenset(("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema", "schema"))
_MOST_FIELDS = 1 << 12
"""Fields of a body that are looked at, without those of its conversation and of schemas."""

_SHORTEST = 6
"""Characters of a credential below which it is looked for by its form only: `none` would be found everywhere."""

_TELLING = 8
"""Characters that tell a known secret from other text: a beginning of it that long goes, too."""

_SCHEME = re.compile(r"^[\w-]+\s+(?=\S+$)")
_KEY_BLOCK = r"[A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = re.compile(rf"-----BEGIN {_KEY_BLOCK}.*?(?:-----END {_KEY_BLOCK}|\Z)", re.S)
_FORMS = {
    "sk-": r"[\w-]{6,}",
    **dict.fromkeys((f"{kind}_{mode}_" for kind in ("sk", "pk", "rk") for mode in ("live", "test")), r"\w{8,}"),
    **dict.fromkeys(("gsk_", "hf_", "r8_", "xai-", "pplx-"), r"\w{16,}"),
    **dict.fromkeys(("nvapi-", "glpat-", "ya29.", "pypi-"), r"[\w-]{16,}"),
    **dict.fromkeys(("dop_v1_", "doo_v1_", "dor_v1_"), r"\w{32,}"),
    "whsec_": r"[\w+/=]{16,}",
    "SG.": r"[\w-]{16,}\.[\w-]{16,}",
    "hooks.slack.com/services/": r"[\w/]{8,}",
    "discord.com/api/webhooks/": r"\d+/[\w-]{16,}",
    **dict.fromkeys(("gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "npm_"), r"\w{20,}"),
    "xox": r"[a-z]-[\w-]{8,}",
    **dict.fromkeys(("AKIA", "ASIA"), r"[0-9A-Z]{16}"),
    "AIza": r"[\w-]{30,}",
    "eyJ": r"[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
}
"""Keys and tokens by their beginnings."""
_FORM = re.compile(rf"\b(?:{'|'.join(re.escape(begin) + rest for begin, rest in _FORMS.items())})")
_SCHEMES = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
_BOT_TOKENS = re.compile(r"\b(?:\d{8,10}:AA[\w-]{30,}|[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,38})")
"""Tokens of Telegram and Discord."""
_NETRC = re.compile(r"(?i)(\blogin\s+\S+\s+password\s+)\S+")
_IN_URL = re.compile(r"(?<=://)[^\s/:@\"']+:[^\s/@\"']+(?=@)")
_NAMED = re.compile(
    r"""(?ix)
    ( (?: api[_-]?key | apikey | access[_-]?token | auth[_-]?token | refresh[_-]?token | client[_-]?secret
        | secret[_-]?(?:access[_-]?)?key | private[_-]?key | (?:account|shared[_-]?access)[_-]?key
        | pass(?:word|wd|phrase) | (?<=_)pass | (?<![a-z])(?:token|secret|pwd) | (?<=[?&])sig
        | authorization | (?<![\w-])(?:set-)?cookie )
      \\*["']? \s* [:=] \s* )
    (?! \\*["']? (?:str|string|bytes|none|null|true|false) \b )
    (?: (?P<quote>\\*["']) (?!\[) (?: (?!(?P=quote)) [^\n] ){4,4096} | [^\s"'\\&,;<>(){}\[\]]{4,} )
    """
)
"""A value in quotes goes as a whole, whatever stands in it."""


_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("-----begin",), _PRIVATE_KEY),
    (("bearer", "basic"), _SCHEMES),
    (tuple(begin.casefold() for begin in _FORMS), _FORM),
    (("://",), _IN_URL),
    ((":aa", "."), _BOT_TOKENS),
    (("password",), _NETRC),
    (("key", "token", "secret", "pass", "pwd", "sig=", "authorization", "cookie"), _NAMED),
)
"""Patterns of secrets; one of the texts must be there, in any case, for a pattern to match. Its groups are no secret.

To look for some words takes a tenth of the time that the patterns take, and hardly any text holds one.
"""
_WORDS = tuple(word for words, _ in _RULES for word in words)


_NO_ASCII = re.compile(r"[^ -~]")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"})
"""Categories of what ends a line, moves a terminal's cursor, turns the direction of text, is not seen, or is none."""
_BLANK = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that Unicode says are not shown (`Default_Ignorable_Code_Point`)."""


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) in _UNSEEN or _BLANK.match(character):
        return character.encode("unicode_escape").decode()
    return character


def escape_invisible[T](value: T) -> T:
    """Plain data with the characters in every text that no one sees written as escapes: what a model says is data."""
    result: Any = value
    match value:
        case str():
            result = _NO_ASCII.sub(_escape, value)
        case list():
            result = [escape_invisible(item) for item in value]
        case dict():
            result = {key: escape_invisible(item) for key, item in value.items()}
    return result  # type: ignore[no-any-return]


def format_exception(error: BaseException, known: Iterable[str] = ()) -> str:
    """An error with its traceback, for a log: scrubbed, and what it says in one line."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames}{escape_invisible(scrub(f'{type(error).__name__}: {error}', known))}"


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """The text without what is secret in it; `known` are secrets as such."""
    spans = [*_find_known(text, known)]
    folded = text.casefold()
    if any(map(folded.__contains__, _WORDS)):
        for words, pattern in _RULES:
            if any(word in folded for word in words):
                spans += map(_get_span, pattern.finditer(text))
    if not spans:
        return text
    # Where one secret stands in another, or runs into it, all of both goes.
    parts, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            parts += [text[at:start], SECRET]
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _get_span(match: re.Match[str]) -> tuple[int, int]:
    """Tell where the secret of a match stands: after the groups that stay."""
    kept = range(1, match.re.groups + 1)
    return max([match.start(), *map(match.end, kept)]), match.end()


def _find_known(text: str, known: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Find known secrets, and what is left of them where an excerpt was cut."""
    by_head: dict[str, list[str]] = {}
    for secret in known:
        by_head.setdefault(secret[:_TELLING], []).append(secret)
    for head, secrets_ in by_head.items():
        at = text.find(head)
        while at >= 0:
            end = at + max(_count_common(text[at : at + len(secret)], secret) for secret in secrets_)
            yield at, end
            at = text.find(head, end)


def _count_common(text: str, secret: str) -> int:
    """Count the characters with which both begin."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, secret, strict=False)))


def scrub_data[T](value: T, known: Iterable[str] = ()) -> T:
    """Plain data with every text in it scrubbed; keys are kept."""
    known = tuple(known)
    result: Any = value
    match value:
        case str():
            result = scrub(value, known)
        case list():
            result = [scrub_data(item, known) for item in value]
        case dict():
            result = {key: scrub_data(item, known) for key, item in value.items()}
    return result  # type: ignore[no-any-return]


def collect_secrets(headers: Mapping[str, str], query: str = "", body: Any = None) -> tuple[str, ...]:
    """Collect what a request carries as a credential, in each form in which it may be repeated, the longest first.

    Names of headers count in any case; `body` is its JSON.
    """
    values = {value for name, value in headers.items() if is_credential(name)} | {*_find_body_credentials(body)}
    parts = {part for value in values for part in _split_value(value)}
    for value in find_query_credentials(query):
        parts |= {value, unquote(value), unquote_plus(value)}
    forms = values.union(*(_list_forms(part) for part in parts if len(part) >= _SHORTEST))
    return tuple(sorted((form for form in forms if len(form) >= _SHORTEST), key=lambda form: (-len(form), form)))


def is_credential(name: str) -> bool:
    """True if what is named so says who a client is."""
    folded = name.casefold()
    return folded.endswith(_CREDENTIAL) and not folded.replace("-", "").replace("_", "").endswith(_NO_CREDENTIAL)


def find_query_credentials(query: str) -> Iterator[str]:
    """Find the credentials of a URL's query, as they are written there."""
    return (value for part in split_query(query)[1] if (value := part.partition("=")[2]))


def split_query(query: str) -> tuple[list[str], list[str]]:
    """Part a URL's query in what holds no credential and what holds one."""
    parts: tuple[list[str], list[str]] = [], []
    for part in filter(None, query.split("&")):
        parts[is_credential(unquote_plus(part.partition("=")[0]))].append(part)
    return parts


def _split_value(value: str) -> Iterator[str]:
    """Take the value of a header or a field apart: what follows a scheme, the values of cookies, a password."""
    for part in re.split(r"[;,]\s*", value):
        bare = _SCHEME.sub("", part)
        yield from (bare, bare.partition("=")[2].strip('"'))
        if part.casefold().startswith("basic "):
            try:
                decoded = b64decode(bare).decode()
            except ValueError:
                continue
            yield from (decoded, decoded.partition(":")[2])


def _find_body_credentials(body: Any) -> Iterator[str]:
    """Find the credentials of a request's body; what is said in it and schemas of tools hold none."""
    waiting, left = [body], _MOST_FIELDS
    while waiting and left:
        left -= 1
        match waiting.pop():
            case dict() as fields:
                for name, value in fields.items():
                    if isinstance(value, str):
                        if is_credential(name):
                            yield value
                    elif name not in _CONVERSATION and name not in _SCHEMAS:
                        waiting.append(value)
            case list() as entries:
                waiting += entries


def _list_forms(secret: str) -> Iterator[str]:
    """Write a secret as URLs, HTML and JSON repeat it."""
    yield secret
    yield html.escape(secret)
    written = json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (written, written.replace("/", "\\/"))
    for quoted in (
        quote(secret, errors="replace"),
        quote(secret, "", errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield quoted
        yield re.sub("%..", lambda match: match[0].lower(), quoted)
