"""Secrets taken out of text that is kept: reports, comments, logs and saved cases.

What is known to be secret (the values of the request's own headers) goes wherever it stands; what only looks like a
secret goes by its form (the published prefixes of API keys, JSON Web Tokens, private keys) or by the name before it
(`api_key=…`, `"password": "…"`). Too much taken out is a blemish, too little a leak.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import takewhile
from typing import Any

SECRET = "[secret]"
"""What stands in a secret's place."""

HEADERS = ("authorization", "proxy-authorization", "cookie", "set-cookie", "x-api-key", "api-key", "x-goog-api-key")
"""Headers whose values are secret."""

_SHORTEST = 6
"""Characters of a header's value below which it is looked for by its form only: `none` would be found everywhere."""

_TELLING = 8
"""Characters that tell a known secret from other text: a beginning of it that long goes, too."""

_SCHEME = re.compile(r"(?i)^(bearer|basic|token)\s+")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.S)
_FORMS = re.compile(
    r"""\b(?:
        sk-[\w-]{6,} | (?:sk|pk|rk)_(?:live|test)_\w{8,} | gsk_\w{16,} | hf_\w{16,} | nvapi-[\w-]{16,} | r8_\w{16,}
      | gh[opsur]_\w{20,} | github_pat_\w{20,} | glpat-[\w-]{16,} | npm_\w{20,} | xox[a-z]-[\w-]{8,}
      | (?:AKIA|ASIA)[0-9A-Z]{16} | AIza[\w-]{30,}
      | eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*
    )""",
    re.X,
)
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


def scrub(text: str, known: Iterable[str] = ()) -> str:
    """The text without what is secret in it; `known` are secrets as such."""
    for secret in known:
        text = _without(text, secret)
    text = _PRIVATE_KEY.sub(SECRET, text)
    text = _SCHEMES.sub(rf"\1\2{SECRET}", text)
    text = _FORMS.sub(SECRET, text)
    text = _IN_URL.sub(SECRET, text)
    return _NAMED.sub(rf"\1{SECRET}", text)


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
