"""Remove secrets from stored text: reports, comments, logs and saved cases.

Known secrets, which are the credentials of the request itself, are removed wherever they occur. Other text is removed
if it looks like a secret (published prefixes of API keys, JSON Web Tokens, private keys) or follows a telling name
(`api_key=…`, `"password": "…"`). Removing too much is a blemish, too little is a leak.
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
"""Placeholder for a secret."""

CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization")
"""Headers in which clients send their credentials."""
_CREDENTIAL_SUFFIXES = (
    *("key", "token", "auth", "authorization", "authorisation", "authentication", "secret", "password", "passwd"),
    *("passphrase", "credential", "credentials", "cookie", "assertion", "signature", "sig", "jwt"),
)
"""Suffixes of the names of headers, query parameters and body fields that hold a credential."""
_HARMLESS_SUFFIXES = ("cachekey", "idempotencykey", "websocketkey")
"""Suffixes of names that end like a credential but hold none, without underscores and hyphens."""
_CONVERSATION_FIELDS = frozenset(
    ("messages", "contents", "input", "prompt", "system", "instructions", "systemInstruction", "system_instruction")
)
"""Body fields with the conversation; they are not searched for credentials."""
_SCHEMA_FIELDS = frozenset(("parameters", "input_schema", "parametersJsonSchema", "parameters_json_schema", "schema"))
"""Body fields with tool schemas, whose parameter names may resemble credentials; they are not searched."""
_MAX_SEARCHED_NODES = 1 << 12
"""Maximum number of objects and lists of a body that are searched for credentials."""

_MIN_SECRET_CHARS = 6
"""Minimum length of a known secret. Shorter ones (`none`) would match everywhere; they are found by `_RULES` alone."""

_HEAD_CHARS = 8
"""Characters at the start of a known secret that identify it: longer truncated copies are removed, too."""

_AUTH_SCHEME = re.compile(r"^[\w-]+\s+(?=\S+$)")
_KEY_BLOCK = r"[A-Z ]*PRIVATE KEY(?: BLOCK)?-----"
_PRIVATE_KEY = re.compile(rf"-----BEGIN {_KEY_BLOCK}.*?(?:-----END {_KEY_BLOCK}|\Z)", re.S)
_KEY_FORMATS = {
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
"""Keys and tokens by their prefixes, each with the pattern of its rest."""
_KNOWN_KEY = re.compile(rf"\b(?:{'|'.join(re.escape(begin) + rest for begin, rest in _KEY_FORMATS.items())})")
_BEARER_OR_BASIC = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
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
"""Values after a telling name. A quoted value is removed as a whole."""


_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str]], ...] = (
    (("-----begin",), _PRIVATE_KEY),
    (("bearer", "basic"), _BEARER_OR_BASIC),
    (tuple(begin.casefold() for begin in _KEY_FORMATS), _KNOWN_KEY),
    (("://",), _IN_URL),
    ((":aa", "."), _BOT_TOKENS),
    (("password",), _NETRC),
    (("key", "token", "secret", "pass", "pwd", "sig=", "authorization", "cookie"), _NAMED),
)
"""Patterns of secrets. The groups of a match are kept; the rest, after them, is the secret.

Each pattern has words, in lower case, of which any text that it matches contains one. Searching for the words first
takes a tenth of the time of the patterns, and hardly any text contains one.
"""
_RULE_WORDS = tuple(word for words, _ in _RULES for word in words)


_NOT_PRINTABLE_ASCII = re.compile(r"[^ -~]")
_INVISIBLE_CATEGORIES = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"})
"""Unicode categories of line ends, control characters, invisible and unassigned characters."""
_BLANK = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks without a visible form (`Default_Ignorable_Code_Point`)."""


def _escape(match: re.Match[str]) -> str:
    character = match[0]
    if unicodedata.category(character) in _INVISIBLE_CATEGORIES or _BLANK.match(character):
        return character.encode("unicode_escape").decode()
    return character


def escape_invisible[T](value: T) -> T:
    """Replace invisible characters in all strings of plain data by escapes, because model text is untrusted."""
    result: Any = value
    match value:
        case str():
            result = _NOT_PRINTABLE_ASCII.sub(_escape, value)
        case list():
            result = [escape_invisible(item) for item in value]
        case dict():
            result = {key: escape_invisible(item) for key, item in value.items()}
    return result  # type: ignore[no-any-return]


def format_exception(error: BaseException, known: Iterable[str] = ()) -> str:
    """Format an error and its traceback for a log: scrubbed, with the message on one line."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames}{escape_invisible(scrub_text(f'{type(error).__name__}: {error}', known))}"


def scrub_text(text: str, known: Iterable[str] = ()) -> str:
    """Replace all secrets in a text; `known` are texts that are known to be secret."""
    spans = [*_find_known(text, known)]
    folded = text.casefold()
    if any(map(folded.__contains__, _RULE_WORDS)):
        for words, pattern in _RULES:
            if any(word in folded for word in words):
                spans += map(_get_span, pattern.finditer(text))
    if not spans:
        return text
    # Overlapping secrets are removed as one span.
    parts, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            parts += [text[at:start], SECRET]
        at = max(at, end)
    return "".join([*parts, text[at:]])


def _get_span(match: re.Match[str]) -> tuple[int, int]:
    """Return the span of the secret in a match of a rule: all of it after its last group."""
    kept = range(1, match.re.groups + 1)
    return max([match.start(), *map(match.end, kept)]), match.end()


def _find_known(text: str, known: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Find known secrets, including those that are truncated in an excerpt."""
    by_head: dict[str, list[str]] = {}
    for secret in known:
        by_head.setdefault(secret[:_HEAD_CHARS], []).append(secret)
    for head, candidates in by_head.items():
        at = text.find(head)
        while at >= 0:
            end = at + max(_count_common(text[at : at + len(secret)], secret) for secret in candidates)
            yield at, end
            at = text.find(head, end)


def _count_common(text: str, secret: str) -> int:
    """Return the length of the common prefix."""
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text, secret, strict=False)))


def scrub_data[T](value: T, known_secrets: Iterable[str] = ()) -> T:
    """Scrub all strings in plain data; keys are kept."""
    known_secrets = tuple(known_secrets)
    result: Any = value
    match value:
        case str():
            result = scrub_text(value, known_secrets)
        case list():
            result = [scrub_data(item, known_secrets) for item in value]
        case dict():
            result = {key: scrub_data(item, known_secrets) for key, item in value.items()}
    return result  # type: ignore[no-any-return]


def collect_secrets(headers: Mapping[str, str], query: str = "", body: Any = None) -> tuple[str, ...]:
    """Collect the credentials of a request in every encoding in which they may be repeated, longest first.

    Names of headers count in any case; `body` is its JSON.
    """
    values = {value for name, value in headers.items() if is_credential(name)} | {*_find_body_credentials(body)}
    parts = {part for value in values for part in _split_value(value)}
    for value in find_query_credentials(query):
        parts |= {value, unquote(value), unquote_plus(value)}
    forms = values.union(*(_list_encodings(part) for part in parts if len(part) >= _MIN_SECRET_CHARS))
    long_enough = (form for form in forms if len(form) >= _MIN_SECRET_CHARS)
    return tuple(sorted(long_enough, key=lambda form: (-len(form), form)))


def is_credential(name: str) -> bool:
    """True if a header, parameter or field of this name holds a credential."""
    folded = name.casefold()
    joined = folded.replace("-", "").replace("_", "")
    return folded.endswith(_CREDENTIAL_SUFFIXES) and not joined.endswith(_HARMLESS_SUFFIXES)


def drop_credentials(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment without credentials."""
    return {name: value for name, value in environment.items() if not is_credential(name)}


def find_query_credentials(query: str) -> Iterator[str]:
    """Find the credentials in the query of a URL, still percent-encoded."""
    return (value for part in split_query(query)[1] if (value := part.partition("=")[2]))


def split_query(query: str) -> tuple[list[str], list[str]]:
    """Split the parameters of a query into those without and those with a credential."""
    parts: tuple[list[str], list[str]] = [], []
    for part in filter(None, query.split("&")):
        parts[is_credential(unquote_plus(part.partition("=")[0]))].append(part)
    return parts


def _split_value(value: str) -> Iterator[str]:
    """Extract the secrets in the value of a header or field: a token after its scheme, cookie values, a password."""
    for part in re.split(r"[;,]\s*", value):
        bare = _AUTH_SCHEME.sub("", part)
        yield from (bare, bare.partition("=")[2].strip('"'))
        if part.casefold().startswith("basic "):
            try:
                decoded = b64decode(bare).decode()
            except ValueError:
                continue
            yield from (decoded, decoded.partition(":")[2])


def _find_body_credentials(body: Any) -> Iterator[str]:
    """Find the credentials in the body of a request; its conversation and tool schemas are skipped."""
    unsearched, budget = [body], _MAX_SEARCHED_NODES
    while unsearched and budget:
        budget -= 1
        match unsearched.pop():
            case dict() as fields:
                for name, value in fields.items():
                    if isinstance(value, str):
                        if is_credential(name):
                            yield value
                    elif name not in _CONVERSATION_FIELDS and name not in _SCHEMA_FIELDS:
                        unsearched.append(value)
            case list() as entries:
                unsearched += entries


def _list_encodings(secret: str) -> Iterator[str]:
    """Yield the spellings of a secret in plain text, HTML, JSON and URLs."""
    yield secret
    yield html.escape(secret)
    escaped = json.dumps(secret, ensure_ascii=False)[1:-1]
    yield from (escaped, escaped.replace("/", "\\/"))
    for quoted in (
        quote(secret, errors="replace"),
        quote(secret, "", errors="replace"),
        quote_plus(secret, errors="replace"),
    ):
        yield quoted
        yield re.sub("%..", lambda match: match[0].lower(), quoted)  # some libraries write %2f, not %2F
