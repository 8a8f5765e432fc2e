"""Detect turns that end in silence: an empty reply, reasoning alone, or the mere announcement of the next action.

    Now I will read a.txt with the read tool:            and the reply ends, without a call

An agent takes such a reply for the end of its work. The words of announcements are in `silence.yaml`. Only the last
sentence counts, unless it is in a list, a quotation or code, or the reply contains a question.
"""

from __future__ import annotations

import re
from functools import cache, cached_property
from pathlib import Path

import msgspec

from vtc.events import Silence
from vtc.profiles.document import load_table

MAX_SENTENCE_CHARACTERS = 300
"""Characters beyond which a sentence is no announcement."""


class Language(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """Expressions for one language; in `says`, `{verb}` stands for one of the verbs and `{adverbs}` for adverbs."""

    language: str
    verbs: tuple[str, ...]
    says: tuple[str, ...]
    """Beginnings of an announcement."""
    opens: tuple[str, ...] = ()
    """Words that may precede it."""
    adverbs: str = ""

    def __post_init__(self) -> None:
        try:
            _ = self.pattern
        except re.error as error:
            raise ValueError(f"{self.language}: {error}") from None

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The expression for an announcement at the start of a sentence."""
        verb = f"(?:{'|'.join(self.verbs)})"
        says = (words.replace("{verb}", verb).replace("{adverbs}", self.adverbs) for words in self.says)
        opens = rf"(?:(?:{'|'.join(self.opens)})[\s,，;:!—–-]+)*" if self.opens else ""
        return re.compile(rf"{opens}(?:{'|'.join(says)})", re.I)


class Lexicon(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, dict=True):
    """The contents of `silence.yaml`."""

    announced: tuple[Language, ...]
    unless: tuple[str, ...]
    """Expressions for sentences in which somebody else acts first, or nothing remains to do."""
    reminders: dict[Silence, str]
    """The reminder for each kind of silence."""

    @cached_property
    def exception(self) -> re.Pattern[str]:
        """The expression for the sentences in `unless`."""
        return re.compile("|".join(self.unless), re.I)


@cache
def load_lexicon() -> Lexicon:
    """Load `silence.yaml`, which only profiles with reminders need."""
    return load_table(Path(__file__).with_suffix(".yaml"), Lexicon)


_CODE = re.compile(r"^ {0,3}(```|~~~).*?(?:^ {0,3}\1|\Z)|`[^`\n]*`", re.M | re.S)
_QUESTION = re.compile(r"\?[\"'”’)*_]*(?=\s|\Z)|？")
_SENTENCE_END = re.compile(r"(?<=[.!…])[\"'”’)*_]*\s+|(?<=[。！])|(?<=[:：])\s+(?=\S)")
_NOT_PROSE = re.compile(r"\s*(?:[-+>|#]|\*\s|\d+[.)]\s|```|~~~| {4}|\t)")  # used with match
_EMPHASIS = re.compile(r"[*_]{1,3}")


def classify_silence(text: str, *, thought: bool, offered: bool) -> Silence | None:
    """Classify the silence of a whole reply without a call, by its full text; None if it is not silent.

    `thought` is True if the model reasoned. Only a model that was `offered` tools can announce a call.
    """
    if not text.strip():
        return "thought" if thought else "empty"
    return "announced" if offered and is_announcement(text) else None


def is_announcement(text: str) -> bool:
    """Return True if the last sentence announces the model's next action in the first person."""
    line = text.rstrip().rpartition("\n")[2]
    if _NOT_PROSE.match(line):
        return False
    last = next(filter(None, reversed(_SENTENCE_END.split(line.strip()))), "")
    sentence = _EMPHASIS.sub("", last).strip()
    if not 0 < len(sentence) <= MAX_SENTENCE_CHARACTERS or not any(
        words.pattern.match(sentence) for words in load_lexicon().announced
    ):
        return False
    return not (load_lexicon().exception.search(sentence) or _QUESTION.search(_CODE.sub("`", text)))
