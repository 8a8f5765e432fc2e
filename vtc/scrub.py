"""Secrets taken out of text that is kept: reports, comments, logs and saved cases.

What is known to be secret (the values of the request's own headers) goes wherever it stands; what only looks like a
secret goes by its form (the published prefixes of API keys, JSON Web Tokens, private keys) or by the name before it
(`api_key=…`, `"password": "…"`). Too much taken out is a blemish, too little a leak.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

SECRET = "[secret]"
"""What stands in a secret's place."""

CREDENTIALS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "proxy-authorization")
"""Headers by which a client says who it is."""
HEADERS = (*CREDENTIALS, "cookie", "set-cookie")
"""Headers whose values are secret."""

_SHORTEST = 6
"""Characters of a header's value below which it is looked for by its form only: `none` would be found everywhere."""

_TELLING = 8
"""Characters that tell a known secret from other text: a beginning of it that long goes, too."""

_SCHEME = re.compile(r"(?i)^(bearer|basic|token)\s+")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_FORMS = {
    "sk-": r"[\w-]{6,}",
    **dict.fromkeys((f"{kind}_{mode}_" for kind in ("sk", "pk", "rk") for mode in ("live", "test")), r"\w{8,}"),
    **dict.fromkeys(("gsk_", "hf_", "r8_"), r"\w{16,}"),
    **dict.fromkeys(("nvapi-", "glpat-"), r"[\w-]{16,}"),
    **dict.fromkeys(("gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "npm_"), r"\w{20,}"),
    "xox": r"[a-z]-[\w-]{8,}",
    **dict.fromkeys(("AKIA", "ASIA"), r"[0-9A-Z]{16}"),
    "AIza": r"[\w-]{30,}",
    "eyJ": r"[\w-]{8,}\.[\w-]{8,}\.[\w-]*",
}
"""How keys and tokens begin, and what follows."""
_FORM = re.compile(rf"\b(?:{'|'.join(re.escape(begin) + rest for begin, rest in _FORMS.items())})")
_SCHEMES = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
_IN_URL = re.compile(r"(?<=://)[^\s/:@\"']+:[^\s/@\"']+(?=@)")
_NAMED = re.compile(
    r"""(?ix)
    ( (?: api[_-]?key | apikey | access[_-]?token | auth[_-]?token | refresh[_-]?token | client[_-]?secret
        | secret[_-]?(?:access[_-]?)?key | password | passwd | authorization | (?<![\w-])(?:set-)?cookie )
      \\*["']? \s* [:=] \s* \\*["']? )
    (?! (?:str|string|bytes|none|null|true|false) \b ) [^\s"'\\&,;<>(){}\[\]]{4,}
    """
)


_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("-----begin",), _PRIVATE_KEY, SECRET),
    (("bearer", "basic"), _SCHEMES, rf"\1\2{SECRET}"),
    (tuple(begin.casefold() for begin in _FORMS), _FORM, SECRET),
    (("://",), _IN_URL, SECRET),
    (("key", "token", "secret", "passw", "authorization", "cookie"), _NAMED, rf"\1{SECRET}"),
)
"""What text one of which must be there, in any case, for a pattern to find anything; and what it puts in its place.

To look for some words takes a tenth of the time that the patterns take, and hardly any text holds one.
"""
_WORDS = tuple(word for words, _, _ in _RULES for word in words)


_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufeff]")
"""Characters that end a line, move a terminal's cursor, turn the direction of text, or are none."""


def escaped[T](value: T) -> T:
    """Plain data with the control characters in every text written as escapes: what is told of a model is data."""
    result: Any = value
    match value:
        case str():
            result = _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), value)
        case list():
            result = [escaped(item) for item in value]
        case dict():
            result = {key: escaped(item) for key, item in value.items()}
    return result  # type: ignore[no-any-return]


def told(error: BaseException) -> str:
    """An error with its traceback, for a log: scrubbed, and what it says in one line."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    return f"{frames}{escaped(scrub(f'{type(error).__name__}: {error}'))}"


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """The text without what is secret in it; `known` are secrets as such."""
    for secret in known:
        text = _without(text, secret)
    folded = text.casefold()
    if not any(map(folded.__contains__, _WORDS)):
        return text
    for words, pattern, instead in _RULES:
        if any(word in folded for word in words):
            text = pattern.sub(instead, text)
    return text


def _without(text: str, secret: str) -> str:
    """The text without a known secret, and without what is left of it where an excerpt was cut."""
    head = secret[:_TELLING]
    at = text.find(head)
    while at >= 0:
        end = at + sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(text[at:], secret, strict=False)))
        text = text[:at] + SECRET + text[end:]
        at = text.find(head, at + len(SECRET))
    return text


def scrubbed[T](value: T, known: Iterable[str] = ()) -> T:
    """Plain data with every text in it scrubbed; keys are kept."""
    known = tuple(known)
    result: Any = value
    match value:
        case str():
            result = scrub(value, known)
        case list():
            result = [scrubbed(item, known) for item in value]
        case dict():
            result = {key: scrubbed(item, known) for key, item in value.items()}
    return result  # type: ignore[no-any-return]


def secrets(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The secrets that headers hold, the longest first; a header's name counts in any case."""
    found = set()
    for name, value in headers.items():
        if name.lower() in HEADERS:
            found |= {value, _SCHEME.sub("", value), *(part.partition("=")[2] for part in value.split("; "))}
    return tuple(sorted((one for one in found if len(one) >= _SHORTEST), key=len, reverse=True))
