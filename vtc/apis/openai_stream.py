"""Streamed OpenAI chat completions: each chunk's text goes through a channel, everything else passes.

A frame whose text is not touched leaves as the bytes that came, even if it had to wait. Of any other frame, what it
says besides text (role, usage, logprobs, fields nobody knows) leaves at once, and its text when the channel gives it
back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from vtc.apis.base import Channel
from vtc.apis.openai_alike import Alike
from vtc.apis.openai_calls import deltas_of
from vtc.apis.openai_choice import Choice, Held, Mark, Part, Untouched, apart_from_calls, joined, says
from vtc.apis.openai_chunk import bare, framed, is_more, says_nothing_else, text_only, whole, with_delta
from vtc.apis.openai_json import (
    CUT_OFF,
    cleaned,
    decode,
    finish_reason,
    has_calls,
    has_reasoning,
    text_reason,
)
from vtc.events import Call, Event, Reasoning, Rewritten, Text, ToolCall
from vtc.wire import sse
from vtc.wire.template import Unread


class StreamRewriter:
    """Chunks of one streamed chat completion; each data frame goes through `feed`."""

    def __init__(self, channel: Callable[[], Channel], *, legacy: bool, drop: Collection[str] = ()) -> None:
        self._channel = channel
        self._legacy = legacy
        self._drop = frozenset(drop)
        self._choices: dict[int, Choice] = {}
        self._alike = Alike()
        self._raw = b""  # the frame that is read
        self._undecoded = b""  # the last chunk, if it was not looked at for more than its text
        self._last: dict[str, Any] = {}  # what the last chunk before that said of the whole reply: id, model, …
        self.lines = b""  # of the last frame, those besides its data: the next frame that is made has them

    @property
    def unread(self) -> Unread | None:
        return None if self.lines else self._alike.unread()

    def feed(self, raw: bytes, data: bytes) -> list[bytes]:
        text, choice = self._alike.text(raw), self._alike.choice
        if text and choice and not choice.finished:
            return self._spoken(choice, text, raw, data, alone=True)
        said = None if self._drop or is_more(raw, data) else text_only(data)
        choice = self._choices.get(said.index or 0) if said else None
        if said is None or choice is None or choice.finished:
            return self._feed(raw, data)
        text = said.delta.content or ""
        out = self._spoken(choice, text, raw, data, role=bool(said.delta.role))
        self._alike.learn(choice, raw, data, text)
        return out

    def _spoken(
        self, choice: Choice, text: str, raw: bytes, data: bytes, *, alone: bool = False, role: bool = False
    ) -> list[bytes]:
        """A frame that says some text of one choice; if `alone`, that is all it says."""
        events = choice.channel.feed(text)
        self.lines, self._undecoded = b"", data
        if choice.is_released(events, text):
            out = [held.raw if held.whole else self._remade(choice, held, held.text) for held in choice.held]
            choice.held.clear()
            choice.role_sent = choice.role_sent or role
            out.append(raw)
            return out
        chunk = None if alone else decode(data, "replace")
        if chunk is None or says_nothing_else(chunk, role_sent=choice.role_sent):
            if not events and not (choice.held and choice.held[0].passed):
                choice.held.append(Held(text, raw, whole=True))
                return []
            if len(events) == 1 and not choice.held and choice.channel.structured and isinstance(events[0], Text):
                # The white space at its end waits.
                spoken = events[0].raw
                held = Held(text[len(spoken) :], raw, whole=False)
                out = [self._remade(choice, held, spoken)]
                choice.held.append(held)
                return out
        chunk = chunk or decode(data, "replace")
        (entry,) = chunk["choices"]
        part = Part(choice, entry, entry["delta"], text, read=True, events=events)
        return self._marked(chunk, [choice], lambda: [part], raw)

    def _feed(self, raw: bytes, data: bytes) -> list[bytes]:
        """A frame that says more than some text of one choice."""
        if data.strip() == b"[DONE]":
            return [*self._end(complete=True), raw]
        try:
            chunk = decode(data, "replace")
        except ValueError:
            return [raw]
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        if not isinstance(choices, list) or not all(isinstance(choice, dict) for choice in choices):
            return [raw]
        self.lines = sse.Frame(raw, data).others if is_more(raw, data) else b""
        if self._drop:
            for entry in choices:
                if isinstance(delta := entry.get("delta"), dict) and has_reasoning(delta):
                    self._choice(entry).channel.reasoned()
            if (clean := cleaned(chunk, self._drop)) != chunk:
                chunk, choices, raw = clean, clean["choices"], self.lines + framed(clean)
        return self._marked(
            chunk, [self._choice(entry) for entry in choices], lambda: [self._part(entry) for entry in choices], raw
        )

    def _marked(
        self, chunk: dict[str, Any], choices: Sequence[Choice], read: Callable[[], list[Part]], raw: bytes
    ) -> list[bytes]:
        """A chunk is read and written, or nothing of it is taken."""
        self._raw, self._undecoded, self._last = raw, b"", whole(chunk)
        marks = [Mark(choice) for choice in choices]
        try:
            # All of a chunk is read before any of it is written: should reading fail, nothing of it has left yet.
            parts = read()
            for mark, part in zip(marks, parts, strict=True):
                mark.read(part.events)
            out = self._written(chunk, parts, raw)
        except Exception:
            for mark in marks:
                mark.undo()
            raise
        for part in parts:
            part.choice.settled = part.choice.settled or part.ended
        return out

    def _written(self, chunk: dict[str, Any], parts: list[Part], raw: bytes) -> list[bytes]:
        if len(parts) == 1:
            return self._one(chunk, parts[0], raw)
        outs = [self._one({**chunk, "choices": [part.entry], "usage": None}, part, None) for part in parts]
        if all(isinstance(out, Untouched) for out in outs):
            return [raw]
        if chunk.get("usage") is not None:
            outs.append([self._made({**chunk, "choices": []})])
        return [frame for out in outs for frame in out]

    def finish(self) -> list[bytes]:
        return self._end(complete=False)

    def release(self) -> list[bytes]:
        frames = []
        for choice in self._choices.values():
            frames += [held.raw if held.whole else self._remade(choice, held, held.text) for held in choice.held]
            frames += [raw for raw, _ in choice.frames]
            if choice.apart and choice.gathered and not choice.settled:
                frames.append(
                    framed(with_delta(self._bare(choice), {"tool_calls": choice.gathered.entries(choice.calls)}))
                )
                choice.settled = True
            choice.held.clear()
            choice.frames.clear()
        return frames

    def _made(self, chunk: Mapping[str, Any], held: Held | None = None) -> bytes:
        """A new frame. What else the frame said that it is made of goes with it, and the kind of event with each."""
        source = held if held and held.lines else self
        lines = source.lines
        if not lines:
            return framed(chunk)
        source.lines = sse.event_line(lines)
        return lines + framed(chunk)

    def _remade(self, choice: Choice, held: Held, text: str, as_: str = "content") -> bytes:
        """A frame for a part of what a held one said."""
        if as_ == "content" and not (held.lines or self.lines) and (like := self._alike.with_text(held.raw, text)):
            return like
        chunk = decode(sse.data_of(held.raw) or b"{}", "replace")
        return self._made(with_delta(bare(whole(chunk), choice.index), self._roled(choice, {as_: text})), held)

    def _said(self) -> dict[str, Any]:
        """What the last chunk said of the whole reply."""
        if self._undecoded:
            self._undecoded, self._last = b"", whole(decode(self._undecoded, "replace"))
        return self._last

    def _part(self, entry: dict[str, Any]) -> Part:
        choice, delta = self._choice(entry), entry.get("delta")
        delta = delta if isinstance(delta, dict) else {}
        text = delta.get("content")
        part = Part(choice, entry, delta, text if isinstance(text, str) else "")
        if choice.finished and choice.channel.guarded and (has_calls(delta) or not choice.channel.structured):
            return part.late()
        if has_calls(delta):
            self._native(part)
        if not choice.finished:
            part.read = True
            if has_reasoning(delta):
                choice.channel.reasoned()
            if part.text:
                part.events += choice.channel.feed(part.text)
            if reason := entry.get("finish_reason"):
                choice.finished = part.ended = True
                part.events += choice.end(complete=reason != CUT_OFF)
        return part

    def _native(self, part: Part) -> None:
        """Upstream makes calls itself."""
        choice, delta = part.choice, part.delta
        if choice.channel.structured and not choice.native:
            choice.native = True
            part.events += choice.channel.release()
            choice.apart = bool(choice.calls)
        if choice.channel.takes_calls and not choice.finished:
            choice.gathered.add(delta)
            part.gathered = True
            part.delta = {key: value for key, value in delta.items() if key not in ("tool_calls", "function_call")}
        elif choice.calls and delta.get("tool_calls"):
            # Calls that were read from the text before took the first places.
            calls = [{**call, "index": call.get("index", 0) + choice.calls} for call in delta["tool_calls"]]
            part.delta = {**delta, "tool_calls": calls}
        if part.delta is not delta:
            part.entry = {**part.entry, "delta": part.delta}
            part.changed = True

    def _one(self, chunk: dict[str, Any], part: Part, raw: bytes | None) -> list[bytes]:
        """A chunk of one choice; `raw` if it is all that its frame holds."""
        choice, entry, delta = part.choice, part.entry, part.delta
        reason = entry.get("finish_reason")
        out: list[bytes] = []
        if choice.held and not part.events:
            self._pass(choice, out)
        if part.gathered or (part.ended and choice.frames):
            choice.apart = choice.apart or bool(part.text) or not choice.channel.structured
            if raw is not None and not choice.apart:
                self._emit(choice, apart_from_calls(part.events), out)
                if part.ended:
                    return [*out, *self._frames(choice), raw]
                choice.frames.append((raw, {**chunk, "choices": [entry]}))
                return out
            choice.apart = True
            out += self._frames(choice)
        if part.changed:
            chunk, raw = {**chunk, "choices": [entry]}, None
            if not (part.text or reason or any(delta.values()) or chunk.get("usage")):
                return out
        if part.text and part.read and (choice.held or not says(part.events, part.text)):
            self._split(chunk, part, out, raw)
            return out
        if not part.text or choice.held:
            lines, self.lines = self.lines, sse.event_line(self.lines)
            self._emit(choice, part.events, out)
            self.lines = lines  # they belong to what is left of this frame
        if reason and (told := self._reason(choice, reason)) != reason:
            return [*out, self._made({**chunk, "choices": [{**entry, "finish_reason": told}]})]
        choice.role_sent = choice.role_sent or bool(delta.get("role"))
        if raw is not None:
            return [*out, raw]
        return [*out, self._made(chunk)] if out or part.changed else Untouched([self._made(chunk)])

    def _split(self, chunk: dict[str, Any], part: Part, out: list[bytes], raw: bytes | None) -> None:
        """A chunk whose text does not leave as it came: what else it says leaves now, its text when it may."""
        choice, entry, reason = part.choice, part.entry, part.entry.get("finish_reason")
        others = {key: value for key, value in part.delta.items() if key != "content" and value not in (None, "", [])}
        if choice.role_sent:
            others.pop("role", None)
        elif "role" in others:
            choice.role_sent = True
            others["content"] = ""  # as the first chunk of a reply has it
        fields = {key: value for key, value in entry.items() if key not in ("index", "delta", "finish_reason")}
        alone = not (others or reason or any(value is not None for value in (*fields.values(), chunk.get("usage"))))
        if reason and others:
            out.append(self._made(with_delta(self._bare(choice), others)))
        elif not alone and not reason:
            out.append(self._made({**chunk, "choices": [{**entry, "delta": others}]}))
        held = Held(part.text, self._raw, alone and raw is not None, self.lines)
        self.lines = b""
        choice.held.append(held)
        self._emit(choice, part.events, out)
        if reason:
            ending = {**entry, "delta": {}, "finish_reason": self._reason(choice, reason)}
            out.append(self._made({**chunk, "choices": [ending]}))

    def _emit(self, choice: Choice, events: Sequence[Event], out: list[bytes]) -> None:
        for event in joined(events):
            match event:
                case Text(raw):
                    self._take(choice, len(raw), out, "content")
                case Reasoning(raw):
                    kept = "reasoning_content" not in self._drop
                    self._take(choice, len(raw), out, "reasoning_content" if kept else None)
                case Rewritten(raw, text):
                    self._take(choice, len(raw), out, None)
                    delta = self._roled(choice, {"content": text})
                    out.append(self._made(with_delta(self._bare(choice), delta)))
                case Call(raw, call):
                    self._take(choice, len(raw), out, None)
                    self._call(choice, call, out)
                case _:
                    self._take(choice, len(event.raw), out, None)

    def _take(self, choice: Choice, count: int, out: list[bytes], as_: str | None) -> None:
        """The next `count` characters of what is held leave as a field of the delta, or not at all."""
        while count:
            held = choice.held[0]
            part, held.text = held.text[:count], held.text[count:]
            count -= len(part)
            patient = not held.text or (held.text.isspace() and not choice.channel.structured)
            if as_ == "content" and held.whole and patient:
                held.passed += part
                if not held.text:
                    out.append(held.raw)
                    choice.held.popleft()
                continue
            self._pass(choice, out)
            if as_:
                out.append(self._remade(choice, held, part, as_))
            held.whole = False
            if not held.text:
                self.lines = held.lines or self.lines
                choice.held.popleft()

    def _pass(self, choice: Choice, out: list[bytes]) -> None:
        """No more patience: what may leave of the first frame leaves without the rest."""
        held = choice.held[0]
        if held.passed:
            out.append(self._remade(choice, held, held.passed))
            held.passed, held.whole = "", False

    def _call(self, choice: Choice, call: ToolCall, out: list[bytes]) -> None:
        """A complete call: a chunk with its id and name, and one with its arguments."""
        chunk = self._bare(choice)
        head, rest = deltas_of(call, choice.calls, legacy=self._legacy)
        out.append(self._made(with_delta(chunk, self._roled(choice, head))))
        out.append(self._made(with_delta(chunk, rest)))
        choice.calls += 1

    def _frames(self, choice: Choice) -> list[bytes]:
        """The frames that upstream's own calls came in, or if those leave by themselves what else these say."""
        frames, choice.frames = choice.frames, []
        if not choice.apart:
            return [raw for raw, _ in frames]
        rest = [pair for pair in frames if any(pair[1]["choices"][0]["delta"].values()) or pair[1].get("usage")]
        choice.role_sent = choice.role_sent or any(chunk["choices"][0]["delta"].get("role") for _, chunk in rest)
        return [sse.Frame(raw, b"").others + framed(chunk) for raw, chunk in rest]

    def _bare(self, choice: Choice) -> dict[str, Any]:
        """A chunk of the reply that says nothing yet."""
        return bare(self._said(), choice.index)

    def _reason(self, choice: Choice, reason: str | None) -> str | None:
        if not choice.channel.structured or (choice.gathered and not choice.calls):
            return text_reason(reason) if choice.gathered else reason
        return finish_reason(reason, legacy=self._legacy) if choice.calls else reason

    def _roled(self, choice: Choice, delta: dict[str, Any]) -> dict[str, Any]:
        if choice.role_sent:
            return delta
        choice.role_sent = True
        return {"role": "assistant", **delta}

    def _choice(self, entry: Mapping[str, Any]) -> Choice:
        index = entry.get("index") or 0
        if index not in self._choices:
            self._choices[index] = Choice(index, self._channel())
        return self._choices[index]

    def _end(self, *, complete: bool) -> list[bytes]:
        """Choices that upstream did not finish: what was complete is delivered, what is held is given back."""
        self.lines = sse.event_line(self.lines)
        out: list[bytes] = []
        ended: list[tuple[Choice, list[Event]]] = []
        for choice in self._choices.values():
            if not choice.finished:
                choice.finished = True
                ended.append((choice, choice.end(complete=complete)))
        marks: list[Mark] = []
        try:
            for choice, events in ended:
                marks.append(Mark(choice))
                marks[-1].read(events)
            for choice, events in ended:
                self._close(choice, events, out)
                choice.settled = True
        except Exception:
            for mark in marks:
                mark.undo()
            raise
        return out

    def _close(self, choice: Choice, events: Sequence[Event], out: list[bytes]) -> None:
        """What the end of a choice gives, which upstream did not finish."""
        if choice.gathered and not choice.apart:
            self._emit(choice, apart_from_calls(events), out)
            out += self._frames(choice)
            return
        out += self._frames(choice)
        self._emit(choice, events, out)
        if choice.calls or choice.gathered:
            reason = self._reason(choice, "stop")
            ending = {"index": choice.index, "delta": {}, "finish_reason": reason}
            out.append(self._made({**self._said(), "choices": [ending]}))
