"""Check texts against a grammar with llguidance, the engine of vLLM and others, on any machine and without torch.

llguidance accepts Lark, not GBNF. Its own converter rejects valid texts, because literals become tokens of a lexer. So
each character becomes a token here, and the same rules define the same language.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper

_TOKEN = re.compile(
    r'\s*(?:(?P<literal>"(?:[^"\\]|\\.)*")|(?P<set>\[(?:[^\]\\]|\\.)*\])|(?P<name>[a-z][\w-]*)|(?P<sign>[()|*?]|\{\d+,\d+\}))'
)
_ESCAPED = re.compile(r"\\u[0-9a-f]{4}|\\.|.", re.DOTALL)
_PLAIN = {'\\"': '"', "\\\\": "\\", "\\n": "\n", "\\r": "\r", "\\t": "\t"}


def lark(gbnf: str) -> str:
    """Convert the rules for llguidance."""
    lines = []
    for rule in gbnf.splitlines():
        name, _, text = rule.partition(" ::= ")
        lines.append(f"{_name(name)}: {''.join(_convert_text(text))}")
    return "\n".join(lines)


def _name(name: str) -> str:
    return "start" if name == "root" else f"x_{name.replace('-', '_')}"


def _convert_text(text: str) -> Sequence[str]:
    found, at = [], 0
    while at < len(text.rstrip()):
        token = _TOKEN.match(text, at)
        assert token, text[at:]
        at = token.end()
        if literal := token["literal"]:
            characters = [_PLAIN.get(one) or _plain(one) for one in _ESCAPED.findall(literal[1:-1])]
            one = " ".join(f"/[{_escape_character(character)}]/" for character in characters)
            found.append(f" ({one})" if len(characters) > 1 else f" {one}" if one else " ")
        elif token["set"]:
            found.append(f" /{token['set'].replace('/', '\\/')}/")
        else:
            found.append(f" {_name(token['name'])}" if token["name"] else token["sign"])
    return found


def _plain(escaped: str) -> str:
    return chr(int(escaped[2:], 16)) if escaped.startswith("\\u") else escaped


def _escape_character(character: str) -> str:
    return f"\\u{{{ord(character):x}}}"


MARKS = {*b"\"'<>/{}[]()|,:="}
"""Bytes of markup."""


class _Bytes:
    """A tokenizer of single bytes and some longer texts."""

    def __init__(self, words: Sequence[str]) -> None:
        self.tokens = [*(bytes([one]) for one in range(256)), *(one.encode() for one in words), b"<end>"]
        self.eos_token_id = len(self.tokens) - 1
        self.bos_token_id = None
        self.special_token_ids = [self.eos_token_id]

    def __call__(self, text: bytes | str) -> list[int]:
        return [*(text.encode() if isinstance(text, str) else text)]


class Checker:
    """A checker for one grammar."""

    def __init__(self, gbnf: str, words: Sequence[str] = ()) -> None:
        self._bytes = _Bytes(words)
        self._tokenizer = LLTokenizer(TokenizerWrapper(self._bytes))
        self._grammar = LLMatcher.grammar_from_lark(lark(gbnf))
        assert not (error := LLMatcher.validate_grammar(self._grammar, self._tokenizer)), error

    def _matcher(self) -> LLMatcher:
        matcher = LLMatcher(self._tokenizer, self._grammar)
        assert not matcher.is_error(), matcher.get_error()
        return matcher

    def count_accepted_bytes(self, text: str) -> int:
        """Return how many bytes of a text the grammar accepts."""
        return int(self._matcher().try_consume_tokens([*text.encode()]))

    def accepts(self, text: str) -> bool:
        """Return True if the text can be a whole reply."""
        matcher, data = self._matcher(), [*text.encode()]
        return matcher.try_consume_tokens(data) == len(data) and matcher.is_accepting()

    def complete(self, text: str) -> list[int]:
        """Return the lengths in bytes of the prefixes of a text that are whole replies."""
        matcher, found = self._matcher(), []
        for at, byte in enumerate(text.encode()):
            if matcher.is_accepting():
                found.append(at)
            if not matcher.try_consume_tokens([byte]):
                return found
        return [*found, len(text.encode())] if matcher.is_accepting() else found

    def sample(self, source: random.Random, most: int = 400) -> str | None:
        """Generate a random text token by token, like a model; None if it is incomplete after so many choices."""
        matcher, text = self._matcher(), b""
        end = self._bytes.eos_token_id
        while most > 0:
            mask = matcher.compute_bitmask()
            if matcher.is_error():  # more items than the engine supports
                return None
            allowed = [one for one in range(len(self._bytes.tokens)) if mask[one >> 3] >> (one & 7) & 1]
            if end in allowed and (len(allowed) == 1 or source.random() < 0.5):
                return text.decode()
            token = _choose_token([one for one in allowed if one != end], source)
            most -= len(allowed) > 1
            assert matcher.consume_token(token)
            text += self._bytes.tokens[token]
        return None


def _choose_token(allowed: Sequence[int], source: random.Random) -> int:
    """Choose a token: mostly of markup, because otherwise nothing would ever end."""
    words = [one for one in allowed if one >= 256]
    marks = [one for one in allowed if one in MARKS]
    plain = [one for one in allowed if one < 128]
    pools = [(words, 4), (marks, 4), (plain, 1), (allowed, 1)]
    pool = source.choices([one for one, _ in pools], [weight * bool(one) for one, weight in pools])[0]
    return source.choice(pool)
