"""The frames of a streamed chat completion that are alike but for their text: nearly all of them.

One that was decoded shows what they look like. From then on what such a frame says is found without decoding the rest
of it, and another one is made without encoding it.
"""

from __future__ import annotations

from vtc.apis.openai_choice import Choice
from vtc.apis.openai_chunk import says_nothing_else, text_only
from vtc.apis.openai_json import decode
from vtc.wire.template import Template, Unread

OTHERS = 8
"""Frames that are decoded before it is tried again to make one of them the template, lest it be in vain for each."""


class Alike:
    """Frames that say some text of one choice and nothing else."""

    def __init__(self) -> None:
        self.choice: Choice | None = None
        self._template: Template | None = None
        self._unread: dict[str, Unread] = {}  # by the characters that are watched for
        self._others = 0  # that may yet come

    def learn(self, choice: Choice, raw: bytes, data: bytes, text: str) -> None:
        """A frame was decoded, and says this."""
        if self._others:
            self._others -= 1
            return
        self._others = OTHERS
        if says_nothing_else(decode(data), role_sent=choice.role_sent) and (found := _template(raw, text)):
            self.choice, self._template = choice, found
            self._unread.clear()

    def text(self, raw: bytes) -> str | None:
        """What a frame says; None if it is another kind of frame."""
        return self._template.text(raw) if self._template else None

    def with_text(self, raw: bytes, text: str) -> bytes | None:
        """A frame like this one that says something else; None if it is another kind of frame."""
        return self._template.with_text(text) if self._template and self._template.text(raw) is not None else None

    def unread(self) -> Unread | None:
        """Those that may leave unseen as things are."""
        if self._template is None or self.choice is None or self.choice.finished or self.choice.held:
            return None
        watched = self.choice.channel.watched
        if watched is None:
            return None
        if watched not in self._unread:
            self._unread[watched] = Unread(self._template, watched)
        return self._unread[watched]


def _template(frame: bytes, text: str) -> Template | None:
    """For frames like this one, which says `text`; None if that is written with escapes."""
    before, quoted, after = frame.rpartition(b'"%b"' % text.encode())
    found = Template(before + b'"', b'"' + after)
    # The same characters may stand elsewhere in it: with others there, the frame must say those.
    said = text_only(found.with_text("other").partition(b":")[2]) if quoted else None
    return found if said and said.delta.content == "other" else None
