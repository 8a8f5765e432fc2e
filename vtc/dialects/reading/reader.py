"""Text in, events out: the streaming reader for a set of dialects.

`states.py` says what a token does in a state and `machine.py` turns the crank; what is done is in `prose.py` outside of
calls, here inside of them and in `delivery.py` behind them. Text is consumed strictly forward. Outside a call only what
may still become markup is held back; inside a call everything is, so that a call that does not complete can be given
back as the text it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from vtc.dialects.arguments import envelope
from vtc.dialects.arguments.gemma import GemmaBody
from vtc.dialects.arguments.json_object import JsonBody
from vtc.dialects.arguments.kwargs import KwargsBody
from vtc.dialects.reading.delivery import Delivery
from vtc.dialects.reading.machine import Found
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.reading.prose import WHITE, PlainRule, Thoughts
from vtc.dialects.reading.states import ANCHORED
from vtc.dialects.syntax.grammar import ATTRIBUTES_END, Grammar
from vtc.events import Event, Markup, Text, Tool

__all__ = ["PlainRule", "Reader"]

MOST_ENDS = 16
"""Places at which an opening tag with attributes is taken to end."""

BODIES: dict[str, type[JsonBody | KwargsBody | GemmaBody]] = {
    "json": JsonBody,
    "kwargs": KwargsBody,
    "gemma": GemmaBody,
}
"""What reads the arguments of a call that are not between tags."""


class Reader(Delivery):
    """Reads one message. `feed` and `finish` return events whose `raw` joined is the text that was fed.

    `tools` are the offered tools by name; `think` says what becomes of text between reasoning tags, if the grammar
    has them, and `thinking` that the reply begins inside.
    """

    def __init__(
        self,
        grammar: Grammar,
        tools: Mapping[str, Tool],
        *,
        lenient: bool = True,
        unknown_tools: Literal["text", "allow", "drop"] = "text",
        max_call_bytes: int = 1 << 20,
        think: Thoughts = "reasoning_content",
        thinking: bool = False,
    ) -> None:
        super().__init__(grammar, think=think, thinking=thinking, most_held=max_call_bytes)
        self._tools = tools
        self._lenient = lenient
        self._unknown_tools = unknown_tools
        self._max_call_bytes = max_call_bytes

    def feed(self, text: str) -> list[Event]:
        """Read on; everything that can be told by now is returned."""
        if (said := self._plain(text)) is not None:
            return said
        self._append(text)
        self._read()
        return self._taken()

    def finish(self, *, complete: bool = True) -> list[Event]:
        """The end of the message; not `complete` when the model was cut off (`finish_reason: length`)."""
        self._final, self._complete = True, complete
        self._read()
        # Twice if what was no whole reply is a call all the same.
        while self._call or self._whole:
            if self._call and self._state == "value" and self._lenient and complete and not self._call.spilled:
                self._damage("the reply ends inside it")
            else:
                self._refuse("the reply ends inside it" if complete else "the reply was cut off inside it")
            self._read()
        if self._space:
            space = self._take_space()
            self._out.append(Markup(space) if self._called else Text(space))
        return self._taken()

    def release(self) -> list[Event]:
        """Give back what is held as text, and read no more (upstream turned out to send `tool_calls` itself)."""
        if self._call or self._whole:
            self._refuse("the reply has native tool calls")
        held = self._buffer[self._at :]
        self._at = self._from = len(self._buffer)
        if self._state == "reasoning":
            self._reason(held)
        else:
            self._speak(held)
        if self._space:
            self._out.append(Text(self._take_space()))
        return self._taken()

    def pause(self) -> list[Event]:
        raise NotImplementedError

    def _sink(self, end: int) -> None:
        if self._state in ("value", "damaged", "attributes"):
            text = self._buffer[self._at : end]
            self._at = self._from = end
            if text:
                self._hold(text, value=self._state == "value")
        else:
            super()._sink(end)

    # Calls

    def _head(self, found: Found) -> None:
        token = found.lastgroup
        assert token is not None
        if self._state not in ANCHORED:
            self._sink(found.start())
        head = self._grammar.heads.get(token)
        form = head.form if head else self._form
        assert form is not None
        if head and head.attributes and not self._lenient:
            self._skip(found)
            return
        groups = found.groupdict()
        written, id_ = groups.get(f"name_{token}") or "", groups.get(f"id_{token}")
        index = groups.get(f"index_{token}") or ""
        self._call = OpenCall(form, written, id_, self._tools, index=index, lenient=self._lenient)
        self._call.size = self._waiting
        if head and head.attributes and not self._call.may_open(found[f"key_{token}"]):
            self._call = None
            self._skip(found)
            return
        self._call.hold(self._take_space())
        if head and head.attributes:
            self._hold(self._buffer[self._at : found.start(f"attribute_{token}")])
            self._call.begin_body()
            self._go("attributes", ATTRIBUTES_END, found.start(f"attribute_{token}"))
        elif form.body == "params":
            self._hold(self._buffer[self._at : found.end()])
            self._call.begin_body()
            self._go("arguments", self._grammar.arguments(form, self._call.written), found.end())
        elif form.body == "kwargs":
            self._open_json(found.end())
        elif groups.get(f"json_{token}"):
            self._open_json(found.start(f"json_{token}"))
        else:
            self._open_json(self._buffer.index("{", found.start()))

    def _open_json(self, at: int) -> None:
        assert self._call is not None
        self._hold(self._buffer[self._at : at])
        form = self._call.form
        kind = form.body if form.body == "kwargs" else form.dialect.codec
        self._call.json = BODIES[kind](lenient=self._lenient)
        self._call.begin_body()
        self._go("json", self._scan, at)

    def _hold(self, text: str, *, value: bool = False) -> None:
        call = self._call
        assert call is not None
        if call.spilled:
            self._speak(text)
            return
        call.hold(text, value=value)
        if call.size > self._max_call_bytes:
            self._speak(self._given_back(f"longer than {self._max_call_bytes} bytes"))
            call.spill()

    def _param(self, found: Found) -> None:
        """A parameter's opener, behind the head or behind the closer of the parameter before."""
        call, token = self._call, found.lastgroup
        assert call is not None
        assert token is not None
        key = found[f"key_{token}"]
        if self._state == "value":
            if not call.may_open(key):
                self._skip(found)
                return
            self._sink(found.start())
            call.close_param()
        elif not call.may_open(key):
            self._no_arguments()
            return
        self._hold(self._buffer[self._at : found.end()])
        groups = found.groupdict()
        said = groups.get(f"string_{token}") or groups.get(f"type_{token}")
        call.open_param(key, int(token[1:]), said in ("true", "string") if said else None)
        self._go("value", self._grammar.value(call.form, call.written, int(token[1:]), key), found.end())

    def _attributes_end(self, found: Found) -> None:
        """The end of a tag with attributes, unless it is still inside of one."""
        call = self._call
        assert call is not None
        text = call.body + self._buffer[self._at : found.end()]
        call.ends += 1
        if call.ends > MOST_ENDS:
            self._refuse(f"its opening tag has more than {MOST_ENDS} ends")
        elif not call.read_attributes(text):
            self._skip(found)
        elif text.endswith("/>"):
            self._done(found)
        else:
            self._hold(self._buffer[self._at : found.end()])
            self._go("tail", self._grammar.tail(call.form, call.written), found.end())

    def _bare_tail(self, found: Found) -> None:
        """The end of a call that has no parameters."""
        assert self._call is not None
        if self._call.may_be_empty:
            self._done(found)
        else:
            self._no_arguments()

    def _no_arguments(self) -> None:
        self._refuse("no parameter follows the opening tag")

    def _json_arguments(self, found: Found) -> None:
        self._open_json(self._buffer.index("{", found.start()))

    def _read_without_tokens(self) -> bool:
        """Read on in a JSON body; False when it needs more text."""
        call = self._call
        assert call is not None
        assert call.json is not None
        body = call.json
        end = body.feed(self._buffer, self._at, final=self._final)
        text = self._buffer[self._at : end]
        self._at = self._from = end
        self._hold(text)
        if call.spilled:
            body.discard()
        if body.error and self._lenient and not call.spilled:
            self._damage(f"not JSON: {body.error}")
        elif body.error:
            self._refuse(f"not JSON: {body.error}")
            if call.spilled or not call.form.whole_reply:
                # What follows is still the inside of that call, up to its closer, and nothing in it opens one.
                self._go("spill", self._grammar.closer(call.form, call.written))
        elif body.done:
            self._go("tail", self._grammar.tail(call.form, call.written))
        elif self._final and self._complete and self._lenient and not call.spilled:
            self._damage("the reply ends inside it")
        else:
            return False
        return True

    def _damage(self, reason: str) -> None:
        """The strict reading failed; where this call ends must show before it can be repaired."""
        assert self._call is not None
        self._call.fault = reason
        self._go("damaged", self._grammar.damaged(self._call.form, self._call.written))

    def _damage_end(self, found: Found | None = None) -> None:
        """Another call begins, or the reply ends: what is in between is the damaged call."""
        call = self._call
        assert call is not None
        end = len(self._buffer)
        if found:
            groups = (group for group in found.re.groupindex if group.startswith("next_"))
            end = next(found.start(group) for group in groups if found[group])
        self._hold(self._buffer[self._at : end])
        self._at = self._from = end
        events, rest = call.repaired(self._unknown_tools) if self._complete and not call.spilled else ([], "")
        if not events:
            self._refuse(call.fault)
            return
        self._form = call.form
        self._buffer, self._at = rest + self._buffer[self._at :], 0
        self._accept(events, call)

    def _extra_tail(self, found: Found) -> None:
        """A brace too many, or the fence of a code block, before the call's closers."""
        self._repaired("extra-brace" if found.lastgroup == "extra0" else "code-fence", found)

    def _wrong_tail(self, found: Found) -> None:
        self._repaired("wrong-closer", found)

    def _missing_tail(self, _: Found) -> None:
        """The next call follows at once."""
        self._repaired("missing-closer", None)

    def _repaired(self, repair: str, found: Found | None) -> None:
        assert self._call is not None
        if self._lenient:
            self._call.repairs[repair] = None
            self._done(found)
        else:
            self._refuse("its closing tag is missing")

    def _value_tail(self, found: Found) -> None:
        assert self._call is not None
        self._sink(found.start())
        self._call.close_param()
        self._done(found)

    def _unclosed(self, found: Found) -> None:
        """The reply ends behind a parameter: only closers of the call are missing."""
        assert self._call is not None
        if self._mends("missing-closer"):
            self._value_tail(found)
        else:
            self._skip(found)

    def _no_tail(self) -> None:
        """Something else follows where a call's closers should."""
        if not self._buffer[self._at :].strip(WHITE) and self._mends("missing-closer"):
            self._done(None)
        elif self._lenient and self._call and not self._call.spilled and self._call.form.tail(""):
            self._damage("its closing tag is missing")
        else:
            self._refuse("its closing tag is missing")

    def _done(self, found: Found | None) -> None:
        """All of a call is there."""
        call = self._call
        assert call is not None
        # White space before closers that are missing is not the call's.
        end = found.end() if found and found[0].strip() else self._at
        self._hold(self._buffer[self._at : end])
        self._at = end
        self._form = call.form
        if call.spilled:
            self._call = None
            if call.form.whole_reply:  # still inside the section
                self._go("spill", self._grammar.closer(call.form, call.written))
            else:
                self._to_text()
            return
        try:
            events = call.complete(self._unknown_tools)
        except envelope.NotACall as error:
            self._refuse(str(error))
            return
        self._accept(events, call)
