"""Tell a turn that ends without a word: nothing at all, a thought alone, or no more than what comes next, announced.

    Now I will read a.txt with the read tool:            and the reply ends, without a call

An agent takes such a reply for the end of its work. The words of announcements stand in `silence.yaml`. Only the last
sentence counts, and only where it is no part of a list, a quotation or code, and nothing of the reply is a question.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path

import msgspec

from vtc.events import Silence
from vtc.profiles.document import table

MAX_SENTENCE_CHARACTERS = 300
"""Characters of a sentence beyond which it is no announcement."""


class Language(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The words of one language; expressions, in `says` with `{verb}` for one of the verbs and `{adverbs}`."""

    language: str
    verbs: tuple[str, ...]
    says: tuple[str, ...]
    """How such a sentence begins."""
    opens: tuple[str, ...] = ()
    """What may stand before that."""
    adverbs: str = ""

    def __post_init__(self) -> None:
        try:
            _ = self.pattern
        except re.error as error:
            raise ValueError(f"{self.language}: {error}") from None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """Find an announcement at the beginning of a sentence."""
        verb = f"(?:{'|'.join(self.verbs)})"
        says = (words.replace("{verb}", verb).replace("{adverbs}", self.adverbs) for words in self.says)
        opens = rf"(?:(?:{'|'.join(self.opens)})[\s,，;:!—–-]+)*" if self.opens else ""
        return re.compile(rf"{opens}(?:{'|'.join(says)})", re.I)


class Lexicon(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The words of `silence.yaml`."""

    announced: tuple[Language, ...]
    unless: tuple[str, ...]
    """Says that somebody else is to act first, or that there is nothing to do."""
    reminders: dict[Silence, str]
    """What the model is told, by how it was silent."""

    @cached_property
    def exception(self) -> re.Pattern[str]:
        """Find what `unless` lists."""
        return re.compile("|".join(self.unless), re.I)


@cache
def lexicon() -> Lexicon:
    """Read `silence.yaml`: only profiles that ask about silence need it."""
    return table(Path(__file__).with_suffix(".yaml"), Lexicon)


_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)|`[^`\n]*`", re.M | re.S)
_QUESTION = re.compile(r"\?[\"'”’)*_]*(?=\s|\Z)|？")
_END = re.compile(r"(?<=[.!…])[\"'”’)*_]*\s+|(?<=[。！])|(?<=[:：])\s+(?=\S)")
_NOT_PROSE = re.compile(r"\s*(?:[-+>|#]|\*\s|\d+[.)]\s|```|~~~| {4}|\t)")  # used with match
_EMPHASIS = re.compile(r"[*_]{1,3}")


def classify_silence(text: str, *, thought: bool, offered: bool) -> Silence | None:
    """Tell how a whole reply without a call was silent, by all that it said; None if it was not.

    `thought` says that the model thought; tools were `offered`, without which it can announce nothing.
    """
    if not text.strip():
        return "thought" if thought else "empty"
    return "announced" if offered and is_announcement(text) else None


def is_announcement(text: str) -> bool:
    """True if the last sentence of a text says in the first person what the model does next."""
    line = text.rstrip().rpartition("\n")[2]
    if _NOT_PROSE.match(line):
        return False
    last = next(filter(None, reversed(_END.split(line.strip()))), "")
    sentence = _EMPHASIS.sub("", last).strip()
    if not 0 < len(sentence) <= MAX_SENTENCE_CHARACTERS or not any(
        words.pattern.match(sentence) for words in lexicon().announced
    ):
        return False
    return not (lexicon().exception.search(sentence) or _QUESTION.search(_CODE.sub("`", text)))
