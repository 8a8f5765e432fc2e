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
from vtc.dialects.reading.nesting import NEXT_CALL
from vtc.dialects.reading.open_call import OpenCall
from vtc.dialects.reading.prose import WHITE, PlainRule, Thoughts
from vtc.dialects.reading.states import ANCHORED
from vtc.dialects.syntax.grammar import ATTRIBUTES_END, Grammar
from vtc.events import Event, Markup, Text, Tool

__all__ = ["PlainRule", "Reader"]

MOST_CLOSERS = 16
"""Closers of a parameter in a row that are taken for one."""
MOST_UNDECLARED = 32
"""Undeclared parameters of one call where each has a closing tag, and so an expression, of its own."""
MOST_GUESS = 1000
"""Characters of a value that may be none."""
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
        """End one block of text: decide about what is held as at the end of a message, and read on from the start."""
        if not self._buffer:
            return []  # not a word yet: the first block may begin inside of the reasoning
        events = self.finish()
        self._buffer, self._at, self._final = "", 0, False
        self._said = self._called = False
        self._go("start", self._grammar.start)
        return events

    def _sink(self, end: int) -> None:
        if self._state == "guess":
            self._sink_guess(end)
        elif self._state in ("value", "damaged", "attributes"):
            text = self._buffer[self._at : end]
            self._at = self._from = end
            if text:
                self._hold(text, value=self._state == "value")
        else:
            super()._sink(end)

    def _sink_guess(self, end: int) -> None:
        call = self._call
        assert call is not None
        most = MOST_GUESS - call.value_size
        if end - self._at > most:
            self._hold(self._buffer[self._at : self._at + most], value=True)
            self._at += most
            self._no_arguments()
            return
        self._hold(self._buffer[self._at : end], value=True)
        self._at = self._from = end

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
        if head and head.attributes and not self._call.declares(found[f"key_{token}"]):
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

    # Parameters

    def _param(self, found: Found) -> None:
        """Begin a parameter, after the call's opening tag or after the parameter before."""
        call, token = self._call, found.lastgroup
        assert call is not None
        assert token is not None
        key = found[f"key_{token}"]
        guess = call.begins_with_a_guess(key)
        if guess and not call.may_guess:
            self._no_arguments()
            return
        self._hold(self._buffer[self._at : found.end()])
        groups = found.groupdict()
        said = groups.get(f"string_{token}") or groups.get(f"type_{token}")
        call.open_param(key, int(token[1:]), said in ("true", "string") if said else None)
        if call.undeclared > MOST_UNDECLARED and not call.form.closers_alike:
            self._at = found.end()
            self._refuse(f"it has more than {MOST_UNDECLARED} parameters that its tool does not declare")
        elif guess:
            self._go("guess", self._grammar.guess(call.form, *call.closing_tag), found.end())
        else:
            self._go("value", self._grammar.value(call.form, call.written, *call.closing_tag), found.end())

    def _quoted_param(self, found: Found) -> None:
        assert self._call is not None
        self._call.nesting.open_parameter()
        self._from = found.end()

    def _quoted_call(self, found: Found) -> None:
        assert self._call is not None
        self._call.nesting.open_call()
        self._call.quotes_calls = True
        self._from = found.end()

    def _quoted_tail(self, found: Found) -> None:
        """A closer of the call in a value: it never ends the value, only a parameter's closer does."""
        self._close_quoted(found.end())

    def _lost_call(self, found: Found) -> None:
        """The same, and another call begins right after it."""
        assert self._call is not None
        assert found.lastgroup is not None
        if self._close_quoted(found.start(f"head_{found.lastgroup}")) is None:
            self._call.nesting.call_follows()

    def _close_quoted(self, end: int) -> int | None:
        assert self._call is not None
        kind = self._call.nesting.close_call()
        if kind == NEXT_CALL:
            self._hold(self._buffer[self._at : end])
            self._at = end
            self._refuse("a parameter may have swallowed another call, as its closing tag is missing")
        else:
            self._from = end
        return kind

    def _closer_in_value(self, found: Found) -> None:
        """A closer of the open parameter: what follows decides whether it ends the value."""
        state = self._state
        self._sink(found.start())
        if self._state != state:
            return
        call = self._call
        assert call is not None
        call.paired = call.nesting.close_parameter()
        call.closers = 1
        self._go("closing", self._grammar.closing(call.form, call.written, *call.closing_tag))
        self._from = found.end()

    def _closer_again(self, found: Found) -> None:
        """One more closer: a run of them is one closer."""
        call = self._call
        assert call is not None
        if call.paired or call.closers == MOST_CLOSERS:
            self._content()
        else:
            call.closers += 1
            self._from = found.end()

    def _content(self, _: Found | None = None) -> None:
        """What was read after a value's text is part of it."""
        call, at = self._call, self._from
        assert call is not None
        if call.is_guess:
            self._guessed_wrong()
            return
        call.nesting.balance -= call.closers - 1
        self._go("value", self._grammar.value(call.form, call.written, *call.closing_tag))
        self._from = at

    def _guessed_wrong(self, found: Found | None = None) -> None:
        if found:
            self._sink(found.start())
        if self._state in ("guess", "closing"):
            self._no_arguments()

    def _call_follows(self, _: Found) -> None:
        assert self._call is not None
        if not self._call.paired:
            self._call.nesting.call_follows()
        self._content()

    def _next_param(self, found: Found) -> None:
        call = self._call
        assert call is not None
        assert found.lastgroup is not None
        if call.paired:
            call.nesting.adjacent |= not call.nesting.calls
            self._content()
        elif call.quotes(found[f"key_{found.lastgroup}"]):
            self._content()
        else:
            call.close_param()
            self._param(found)

    def _value_tail(self, found: Found) -> None:
        """End the call: even if an opener in the value pairs with the closer, as long as it quotes no open call."""
        call = self._call
        assert call is not None
        if call.paired and call.nesting.calls:
            self._content()
            return
        if call.is_guess:
            self._no_arguments()
            return
        call.unsure |= call.paired and call.nesting.adjacent
        call.close_param()
        self._done(found)

    def _last_tag(self, found: Found) -> None:
        """After several closers of the parameter, one of which stands for the call's, another closing tag."""
        call = self._call
        assert call is not None
        if call.closers > 1 and self._lenient and not call.is_guess:
            call.repairs["wrong-closer"] = None
            call.close_param()
            self._done(found)
        else:
            self._content()

    def _content_or_end(self) -> None:
        """Text follows a closer, or the reply ends: only closers of the call are missing then."""
        call = self._call
        assert call is not None
        ended = self._final and not self._buffer[self._from :].strip(WHITE)
        if ended and not (call.paired or call.is_guess) and self._mends("missing-closer"):
            call.close_param()
            self._hold(self._buffer[self._at : self._from])
            self._at = self._from
            self._done(None)
        else:
            self._content()

    # The ends of calls

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
