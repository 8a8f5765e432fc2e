"""Secrets taken out of text that is kept: reports, comments, logs and saved cases.

What is known to be secret (the values of the request's own headers) goes wherever it stands; what only looks like a
secret goes by its form (the published prefixes of API keys, JSON Web Tokens, private keys) or by the name before it
(`api_key=…`, `"password": "…"`). Too much taken out is a blemish, too little a leak.
"""

from __future__ import annotations

import re
import traceback
import unicodedata
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
"""How keys and tokens begin, and what follows."""
_FORM = re.compile(rf"\b(?:{'|'.join(re.escape(begin) + rest for begin, rest in _FORMS.items())})")
_SCHEMES = re.compile(r"(?i)\b(bearer|basic)(\s+)[\w.~+/=-]{8,}")
_BOT_TOKENS = re.compile(r"\b(?:\d{8,10}:AA[\w-]{30,}|[MNO][\w-]{22,27}\.[\w-]{6}\.[\w-]{27,38})")
"""Those of Telegram and Discord."""
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


_RULES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (("-----begin",), _PRIVATE_KEY, SECRET),
    (("bearer", "basic"), _SCHEMES, rf"\1\2{SECRET}"),
    (tuple(begin.casefold() for begin in _FORMS), _FORM, SECRET),
    (("://",), _IN_URL, SECRET),
    ((":aa", "."), _BOT_TOKENS, SECRET),
    (("password",), _NETRC, rf"\1{SECRET}"),
    (("key", "token", "secret", "pass", "pwd", "sig=", "authorization", "cookie"), _NAMED, rf"\1\g<quote>{SECRET}"),
)
"""What text one of which must be there, in any case, for a pattern to find anything; and what it puts in its place.

To look for some words takes a tenth of the time that the patterns take, and hardly any text holds one.
"""
_WORDS = tuple(word for words, _, _ in _RULES for word in words)


_NO_ASCII = re.compile(r"[^ -~]")
_UNSEEN = frozenset({"Cc", "Cf", "Cn", "Cs", "Zl", "Zp"})
"""Categories of what ends a line, moves a terminal's cursor, turns the direction of text, is not seen, or is none."""
_BLANK = re.compile(r"[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]")
"""Letters and marks that Unicode says are not shown (`Default_Ignorable_Code_Point`)."""


def _escape(found: re.Match[str]) -> str:
    one = found[0]
    if unicodedata.category(one) in _UNSEEN or _BLANK.match(one):
        return one.encode("unicode_escape").decode()
    return one


def escaped[T](value: T) -> T:
    """Plain data with the characters in every text that no one sees written as escapes: what a model says is data."""
    result: Any = value
    match value:
        case str():
            result = _NO_ASCII.sub(_escape, value)
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
