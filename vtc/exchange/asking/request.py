"""Encode the request in the server's API with the steps that its server needs, and again after each rejection."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from operator import is_not
from typing import Any, NamedTuple

from msgspec.structs import replace

from vtc.apis import Changes, RequestError, bridge
from vtc.apis.bridge import WireNames
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED
from vtc.apis.fields import get_at, put_at, split_raw_object
from vtc.apis.json_path import drop_at, edit_fields
from vtc.apis.layout import MAX_TOKENS
from vtc.apis.seals import SEAL_PREFIX
from vtc.dialects.syntax import tool_names
from vtc.dialects.writing.history import render_usage
from vtc.events import CanonicalRequest, Failure, Message, Silence, Tool
from vtc.exchange.asking.corrections import (
    Correction,
    CorrectionScope,
    Fields,
    RequestParts,
    apply_corrections,
    read_flags,
    render_headers,
)
from vtc.exchange.asking.named_fields import Attempt, find_attempts
from vtc.exchange.asking.quotations import SentText
from vtc.exchange.asking.rejection_rules import RejectionRule
from vtc.exchange.asking.rejections import GRAMMAR_STEPS, LearnedSteps, describe_steps, learn_steps
from vtc.exchange.asking.server_error import ServerError, read_error
from vtc.exchange.asking.steps import BRIDGE_STEPS, DEFAULT_STEPS, StepContext, apply_steps
from vtc.exchange.asking.steps.calls import drop_vtc_seals
from vtc.exchange.asking.steps.limits import count_bytes
from vtc.exchange.asking.window import MAX_BYTES_PER_TOKEN, MIN_CUT_TOKENS, explain_truncation, read_full_window
from vtc.exchange.context import ExchangeContext
from vtc.exchange.replying.expectation import Expectation, GrammarCheck
from vtc.exchange.replying.factory import ReplyFactory
from vtc.exchange.replying.faults import ReplyFault
from vtc.exchange.replying.silence import load_lexicon
from vtc.json_text import decode_json, encode_json
from vtc.profiles.document import format_count
from vtc.profiles.memory import merge_learned
from vtc.profiles.planner import API, MODEL, PROMPT, REPLANNING_QUIRKS, SAME
from vtc.reporting import hints
from vtc.scrub import format_exception

logger = logging.getLogger(__name__)
MAX_REQUESTS = 4
"""Requests per exchange, including the retries after rejections."""
_ALWAYS_LEARNED = (PROMPT, API, "context", MAX_TOKENS)
"""Steps that are learned although the accepted request does not list them as applied."""
UNKNOWN_REPLY_STATUSES = (400, 404, 409, 410, 422)
"""Statuses with which a server may reject the id of a reply that it has forgotten."""
EMPTY_REPLY_TEXT = "(nothing)"
"""Replaces a silent reply, because servers reject empty messages."""


class ReceivedRequest(NamedTuple):
    """A request as its client sent it."""

    body: bytes
    headers: Mapping[str, str] = {}
    """Headers that are forwarded to the server, by name in lower case; empty if it speaks another API."""


class SentRequest(NamedTuple):
    """Parts of a request that are outside its body, or outside it in some APIs."""

    model: str
    streams: bool
    headers: Mapping[str, str | None] = {}
    """The changed headers, by name in lower case; None removes a header."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A rewritten request."""

    body: bytes
    stop: str
    """Reason to stop the agent without sending the request; empty to send it."""


class LastRetry:
    """The steps that the last retry added, and the error that led to it, to judge whether they helped."""

    def __init__(self) -> None:
        self.applied_lines: Mapping[str, str] = {}
        """Report lines of the steps that changed the last request, by name."""
        self.in_vain: set[str] = set()
        """Names of all corrections so far after which the server sent the same error again."""
        self.begin((), LearnedSteps({}), (), ({}, {}))

    def begin(
        self,
        words: tuple[str, ...],
        learned: LearnedSteps,
        lines: Sequence[str],
        before: tuple[Mapping[str, Any], Mapping[str, Any]],
    ) -> None:
        """Begin a retry with the steps learned from an error with these words.

        `lines` is the report without them, `before` the steps and the learned quirks without them.
        """
        self.error_fingerprint = words
        self.steps = learned.steps if learned.kept else {}
        self.suspect = learned.suspect
        self.report_lines = lines
        self.before = before


class RequestEncoder:
    """Encodes one request with the steps that its server needs."""

    def __init__(
        self,
        context: ExchangeContext,
        received: ReceivedRequest,
        factory: ReplyFactory,
        quirks: Mapping[str, Any],
    ) -> None:
        """Set up the encoder; `quirks` holds the quirks learned so far."""
        self._context = context
        self._server = context.server
        self._request = request = context.request
        self._received = received
        self._messages: Sequence[Message] | None = None  # messages that replace the request's own
        self._plan = plan = context.plan
        self._factory = factory
        self._report = context.report
        self.seals = context.seals
        self._steps: dict[str, Any] = {
            **DEFAULT_STEPS,
            **(BRIDGE_STEPS if self._context.is_bridged else {}),
            **plan.steps,
            **quirks,
            MODEL: not plan.stand_in.model,
        }
        if api := SAME if SAME in plan.stack.settings.upstream_api else plan.stack.learned_api:
            self._steps[API] = api
        if self._context.is_bridged and self._server.layout.choice is None:
            self._steps["choice"] = True
        self.learned_quirks: dict[str, Any] = {**quirks}
        """Quirks learned from rejections of this request, useful or not."""
        self._last_retry = LastRetry()
        self.sent_request = SentRequest(request.model, request.stream)
        """Model, form of the reply and changed headers of the last request."""
        self.sent_body = b""
        """Body of the last request."""
        self.sent_prompt: tuple[Sequence[Message], Sequence[Tool]] = (), ()
        """Messages and tools of the last request."""

    @property
    def folds_stream(self) -> bool:
        """True if the server streams although the client asked for a whole reply."""
        return self.sent_request.streams and not self._request.stream

    @property
    def _corrects(self) -> bool:
        """False if a profile disables the correction of fields that a rejection names."""
        return self._steps.get("corrections") is not False

    def encode(self, messages: Sequence[Message] | None) -> bytes:
        """Encode the request, with these messages or its own."""
        body = self._encode(messages)
        self._messages = messages
        return body

    def _encode(self, messages: Sequence[Message] | None) -> bytes:
        plan, request, changes = self._plan, self._request, self._plan.stack.request
        names = WireNames(request.offer.declared if self._steps.get("names") else ())
        context = StepContext(request, self._server, names, plan.learned.made_id)
        # Step 1: apply the steps to the canonical request.
        messages, lines = (messages, []) if self._context.is_bridged else self._drop_foreign_seals(messages)
        given = request.messages if messages is None else messages
        canonical = self._read_canonical(tuple(given))
        ready, applied = apply_steps(canonical, self._steps, context)
        lines += [*request.body.lines, *applied.values()]
        shown = ready.messages
        if self._context.kept:
            ready = replace(ready, messages=(*self._context.kept.select_new(ready.messages),))
        # Step 2: write the result in the server's API, or change only the affected fields of the client's request.
        fields = self._server.writer.build_request(ready) if self._context.is_bridged else request.fields
        drop = [path for path in changes.drop if drop_at(fields, path.split(".")) is not fields]
        lines += [f"{path} left out by a profile" for path in drop]
        if self._context.is_bridged:
            out: Mapping[str, Any] | None = self._translate(fields, ready, drop)
            lines += self._list_dropped(canonical, ready, names)
        else:
            out = self._change_fields(messages, canonical, ready, names, drop)
        # Step 3: apply the corrections of profiles, and those learned from rejections.
        corrections = [Correction("rename", tuple(path.split(".")), to) for path, to in changes.rename.items()]
        corrections += [Correction("leave_out", (*path.split("."),), of="headers") for path in changes.drop_flags]
        corrections += [step for step in self._steps.values() if isinstance(step, Correction) and self._corrects]
        headers: Mapping[str, str | None] = {}
        if corrections:
            fields = (split_raw_object(self._received.body) or {}) if out is None else out
            before = RequestParts(fields, read_flags(self._received.headers))
            after, changed_by = apply_corrections(before, corrections, self._scope)
            out = out if after.body is fields else after.body
            headers = render_headers(before.headers, after.headers)
            applied |= changed_by
            lines += changed_by.values()
        body = self._received.body if out is None else encode_json(out)
        # Step 4: record the facts that the reply, the report and a retry depend on.
        strict = {names.to_client(tool.name): tool for tool in ready.tools if tool.strict}
        constrained = ready.constraint is not None
        length = 0 if plan.stack.as_is else count_bytes(given, plan.offered)
        may_be_truncated = length > MIN_CUT_TOKENS * MAX_BYTES_PER_TOKEN
        self._factory.expected = Expectation(
            names=names if names.changed else None,
            grammar=GrammarCheck(constrained, strict),
            on_count=partial(self._record_token_count, length) if may_be_truncated else None,
            on_error=self._learn_from_stream_error,
        )
        self._report.request += [line for line in lines if line not in self._report.request]
        self._last_retry.applied_lines = applied
        self.sent_request = SentRequest(ready.model or request.model, ready.stream, headers)
        self.sent_body, self.sent_prompt = body, (shown, ready.tools)
        return body

    def _drop_foreign_seals(self, messages: Sequence[Message] | None) -> tuple[Sequence[Message] | None, list[str]]:
        """Drop VTC's seals for a server of another API, because the client does not know that this one is asked."""
        if SEAL_PREFIX.encode() not in self._received.body:
            return messages, []
        given = self._request.messages if messages is None else messages
        own = [drop_vtc_seals(message, self._request) for message in given]
        count = sum(map(is_not, own, given))
        return (own, [_describe_foreign_seals(count)]) if count else (messages, [])

    def _read_canonical(self, messages: tuple[Message, ...]) -> CanonicalRequest:
        """Convert the request to the canonical form; without a bridge, only the parts that steps examine."""
        plan, request = self._plan, self._request
        tools = plan.offered if plan.protocol.is_native or plan.protocol.promote else ()
        if not self._context.is_bridged:
            return CanonicalRequest(
                model=plan.server_model,
                messages=messages,
                tools=tools,
                stream=request.stream and not plan.buffered,
                choice=plan.tool_choice,
                limits=request.generation.limits,
            )
        canonical = bridge.to_canonical(request, messages, tools, plan.tool_choice, plan.thoughts, self.seals)
        # Claude Code requests a longer context by `[1m]`.
        model = plan.server_model or canonical.model.removesuffix("[1m]")
        # A model that is served only by the Responses API reasons, and sends encrypted reasoning only if an effort is
        # set.
        effort = canonical.effort or ("auto" if plan.stack.learned_api else None)
        return replace(canonical, model=model, stream=canonical.stream and not plan.buffered, effort=effort)

    def _change_fields(
        self,
        messages: Sequence[Message] | None,
        request: CanonicalRequest,
        ready: CanonicalRequest,
        names: WireNames,
        drop: Sequence[str],
    ) -> Mapping[str, Any] | None:
        """Apply the changes to the fields of the client's request; None if nothing changes."""
        plan, protocol = self._plan, self._plan.protocol
        withheld = plan.withheld if protocol.is_native else frozenset[str]()
        is_plain = not (self._set_fields or drop or withheld or plan.buffered or plan.server_model)
        if messages is None and ready is request and is_plain and not self._request.body.lines:
            return None
        before = {tool.name: tool for tool in request.tools}
        after = {names.to_client(tool.name): tool for tool in ready.tools}
        is_declared_here = protocol.promote or (bool(after) and not before)
        changes = Changes(
            messages=messages if ready.messages is request.messages else ready.messages,
            tools=ready.tools if is_declared_here else () if protocol.write else None,
            withheld=withheld | (before.keys() - after.keys()),
            redeclared={name: tool for name, tool in after.items() if tool is not before.get(name)},
            undemanded=ready.choice != request.choice and ready.choice == "auto",
            model=plan.server_model,
            unstreamed=plan.buffered,
            streamed=ready.stream and not request.stream,
            limits={name: limit for name, limit in ready.limits.items() if request.limits.get(name) != limit},
            drop=drop,
            set={**self._constraint_fields(ready), **self._set_fields},
        )
        return self._server.writer.apply_changes(self._request, changes)

    def _list_shared_fields(self) -> Iterator[tuple[str, str, Any]]:
        """List the fields that the client's API shares with another: the path, the server's (or empty), the value."""
        accepted = self._server.writer.SHARED_FIELDS if self._plan.stack.server.shared_fields else {}
        for name, path in self._context.client.writer.SHARED_FIELDS.items():
            if (value := get_at(self._request.fields, path)) is not None:
                yield path, accepted.get(name, ""), value

    @property
    def _set_fields(self) -> Mapping[str, Any]:
        """The fields that the profiles set, and those of a conversation that the server keeps."""
        return {**self._plan.stack.request.set, **(self._context.kept.body_fields if self._context.kept else {})}

    def _translate(self, fields: Mapping[str, Any], ready: CanonicalRequest, drop: Sequence[str]) -> Mapping[str, Any]:
        """Complete the request in the fields of the server's API."""
        for _, path, value in self._list_shared_fields():
            fields = put_at(fields, path, value) if path else fields
        kept = {key: value for key, value in {**fields, **self._constraint_fields(ready)}.items() if key not in drop}
        return edit_fields(kept, drop, self._set_fields)

    def _list_dropped(self, request: CanonicalRequest, ready: CanonicalRequest, names: WireNames) -> list[str]:
        """Report the parts of the request that the server's API cannot express."""
        places, layout = self._request.LAYOUT.limits, self._server.layout
        strict = {names.to_client(tool.name) for tool in ready.tools if tool.strict}
        offered = {tool.name for tool in request.tools}
        dropped = [*ready.untranslated]
        if bridge.list_strict_tools(self._request) & offered - strict:
            dropped.append("strict of tools")
        dropped += [places.get(name, (name,))[0] for name in ready.limits if name not in layout.limits]
        dropped += [path for path, accepted, _ in self._list_shared_fields() if not accepted]
        if ready.answer and not ready.answer.schema and not layout.any_json:
            dropped.append("JSON without a schema")
        lines = [f"left out, because the server's API has no such field: {', '.join(dropped)}"] if dropped else []
        if ready.foreign_seals:
            lines.append(_describe_foreign_seals(ready.foreign_seals))
        return lines

    @property
    def _scope(self) -> CorrectionScope:
        """The fields that no correction may touch."""
        return CorrectionScope(self._server.layout, self._plan.stack.policy_paths)

    @property
    def _flags(self) -> Fields:
        """The flags in the headers of the last request."""
        return read_flags({**self._received.headers, **self.sent_request.headers})

    @property
    def _sent_text(self) -> SentText:
        """The texts of the last request, to be removed from errors; empty once the conversation is discarded."""
        flags = self._flags
        names = {self.sent_request.model, *flags, *(flag for header in flags.values() for flag in header)}
        return SentText(decode_json(self.sent_body) if self.sent_body else None, names)

    def _constraint_fields(self, ready: CanonicalRequest) -> Mapping[str, Any]:
        """Return the fields that send the server the grammar of its reply."""
        return self._server.writer.constrain(*ready.constraint) if ready.constraint else {}

    def _record_token_count(self, size: int, tokens: int) -> None:
        """Report a truncated prompt, given its bytes and the tokens that the server counted."""
        window = self._steps.get("context")
        line = explain_truncation(tokens, size, window if isinstance(window, int) else None)
        if line and line not in self._report.notes:
            self._report.notes.append(line)

    def _learn_from_stream_error(self, error: bytes) -> Failure | None:
        """Learn from an error inside a stream, after which no retry is possible; return the error for the client.

        That is the error of a full window, in the words of the client's API; None for any other.
        """
        plan = self._plan
        learned = learn_steps(read_error(error, 200), self._steps)
        steps = {**learned.steps} if learned else {}
        if grammars := {step: value for step, value in steps.items() if step in GRAMMAR_STEPS}:
            plan.quirks.lasting.learn(grammars)
            self._report_quirk("the server rejected the grammar inside its reply: later requests are sent without one")
        if PROMPT in steps and plan.offered and not plan.protocol.write and plan.stack.settings.tools != "native":
            plan.quirks.lasting.learn({PROMPT: True})
            self._report_quirk("the server rejected `tools` inside its reply: later requests have them in the prompt")
        return self.translate_full_window(error, 200)

    def encode_after_rejection(self, error: bytes, status: int) -> bytes | None:
        """Encode the request with the quirks of the server's error; None if it adds none or changes nothing.

        Also None if the tools must move into the prompt, or the server lacks the model: then the caller makes a new
        plan.
        """
        # Step 1: parse the error, and judge the corrections that were tried last.
        parsed = read_error(error, status, self._server.name, self._sent_text)
        self._judge_last_retry(parsed)
        before = [*self._report.request]
        # Step 2: learn steps from the error until some of them change the request. An error can match two rows in turn,
        # of which neither changes this request.
        find_corrections = partial(self._next_attempt, parsed) if self._corrects else dict
        tried: list[Mapping[str, Any]] = []
        may_suspect = partial(self._may_suspect, parsed)
        while (
            learned := learn_steps(parsed, self._steps, find_corrections, may_suspect)
        ) and learned.steps not in tried:
            tried.append(learned.steps)
            replanned = {step: value for step, value in learned.steps.items() if step in REPLANNING_QUIRKS}
            if replanned:
                if API in replanned and API in self.learned_quirks:  # this API was chosen by the same quirk: go back
                    replanned[API] = SAME
                self.learned_quirks |= replanned
                self._steps |= replanned
                return None
            # Step 3: encode the request with the steps, and compare it with the last one.
            last_sent, last_prompt = (self.sent_body, self.sent_request), self.sent_prompt
            state = self._steps, self.learned_quirks
            self._report.request[:] = before
            if learned.kept and not learned.suspect:
                self.learned_quirks = merge_learned(self.learned_quirks, learned.steps)
            self._steps = merge_learned(
                self._steps, learned.steps if learned.once is None else {MAX_TOKENS: learned.once}
            )
            body = self._encode(self._messages)
            if (self.sent_body, self.sent_request) != last_sent:
                self._last_retry.begin(parsed.fingerprint, learned, before, state)
                if not learned.suspect:
                    return body
                if not self._changes_accepted_part(last_prompt):
                    self.learned_quirks = merge_learned(self.learned_quirks, learned.steps if learned.kept else {})
                    self._report.notes.append(_describe_guess(learned.steps))
                    return body
                self._undo_last_retry()
            self._report.request[:] = before
            if learned.once is not None:
                break
        if self._context.kept and status in UNKNOWN_REPLY_STATUSES and self._context.kept.restart():
            self._report_quirk("the server does not know its last reply: it was sent the whole conversation again")
            return self._encode(self._messages)
        return None

    def _next_attempt(self, error: ServerError) -> Attempt:
        """Return the first corrections for an error that were not tried in vain; empty if none remain."""
        attempts = find_attempts(error, self._steps, self.sent_body, self._flags, self._scope)
        return next((attempt for attempt in attempts if not attempt.keys() <= self._last_retry.in_vain), {})

    def _may_suspect(self, error: ServerError, rule: RejectionRule) -> bool:
        """Return True if the steps of a rule may be tried: they are not in vain."""
        in_vain = str(rule.priority) in self._last_retry.in_vain or self._plan.quirks.lasting.is_vain(
            rule.priority, error.fingerprint
        )
        return self._corrects and not in_vain

    def _changes_accepted_part(self, before: tuple[Sequence[Message], Sequence[Tool]]) -> bool:
        """Return True if the last step changes a part of the prompt that the server accepted in an earlier turn.

        It replied to the messages that the last prompt of this conversation shares with this one, if its reply follows
        them.
        """
        kept, messages = self._report.prefix.get("kept", 0), before[0]
        if not 0 < kept < len(messages) or messages[kept].role != "assistant":
            return False
        pairs = zip(messages, self.sent_prompt[0], strict=False)
        changed = next((at for at, (old, new) in enumerate(pairs) if old is not new and old != new), len(messages))
        return changed < kept or self.sent_prompt[0] == messages

    def _judge_last_retry(self, error: ServerError) -> None:
        """Undo the last corrections or suspects if the server repeats its error; hold them if it sends another.

        To hold quirks means to apply them in this conversation, until a reply confirms them for all.
        """
        last = self._last_retry
        if error.fingerprint != last.error_fingerprint:
            self._plan.quirks.held.learn(last.steps)
        elif last.suspect or any(isinstance(step, Correction) for step in last.steps.values()):
            if last.suspect:
                self._plan.quirks.lasting.note_vain(last.suspect, error.fingerprint)
            self._undo_last_retry()
            self._report.request[:] = last.report_lines
        last.steps, last.suspect = {}, 0

    def _undo_last_retry(self) -> None:
        """Undo the corrections or suspects of the last retry, and never try them again in this exchange."""
        last = self._last_retry
        last.in_vain |= {str(last.suspect)} if last.suspect else last.steps.keys()
        self._steps, self.learned_quirks = {**last.before[0]}, {**last.before[1]}
        self._encode(self._messages)

    def encode_retry(self, reply: str, faults: Sequence[ReplyFault]) -> bytes:
        """Encode a retry with the model's reply, its faults, and samples of the calls that failed."""
        listed = "".join(f"\n- {reason}" for reason in dict.fromkeys(fault.quoted or fault.reason for fault in faults))
        usages = dict.fromkeys(filter(None, (self._render_usage(fault.tool) for fault in faults)))
        shown = "".join(f"\nA call is written like this:\n{usage}" for usage in usages)
        again = "Write your call again like that, filled in." if usages else "Write the whole reply again, corrected."
        question = f"Nothing of your last reply was carried out:{listed}{shown}\n{again}"
        self._begin_anew()
        turns = Message("assistant", (reply or EMPTY_REPLY_TEXT,)), Message("user", (question,))
        return self._encode([*self._current_messages, *turns])

    def encode_reminder(self, silence: Silence, text: str) -> tuple[bytes, tuple[Message, ...]]:
        """Encode a retry after a silent turn: the text that the model `said`, and a reminder.

        Return the added messages, too. `how` is the kind of silence.
        """
        tools = [tool.name for tool in self._plan.offered]
        usage = self._render_usage(next((name for name in tools if name in text), tools[0] if tools else ""))
        reminder = load_lexicon().reminders[silence] + f"\nA call is written like this:\n{usage}" * bool(usage)
        self._begin_anew()
        messages = Message("assistant", (text.strip() or EMPTY_REPLY_TEXT,)), Message("user", (reminder,))
        return self._encode([*self._current_messages, *messages]), messages

    def _begin_anew(self) -> None:
        """Send the whole conversation to a server that keeps it, because its last reply is to be repeated."""
        if self._context.kept:
            self._context.kept.restart()

    @property
    def _current_messages(self) -> Sequence[Message]:
        """The conversation as the model sees it."""
        return self._request.messages if self._messages is None else self._messages

    def _render_usage(self, name: str) -> str:
        """Render a sample call of a tool in the model's dialect; empty if it is unknown."""
        write, tools = self._plan.protocol.write, {tool.name: tool for tool in self._request.offer.tools}
        tool = tools.get(tool_names.resolve(name, tools) or "") if name and write else None
        return render_usage(write, tool) if write and tool else ""

    def forget(self) -> None:
        """Discard the conversation."""
        self.sent_prompt, self._messages, self.sent_body = ((), ()), None, b""
        self._received = ReceivedRequest(self._received.body)

    def confirm_quirks(self) -> None:
        """Store the quirks of this request for later ones, because the server accepted it."""
        quirks = self._select_used(merge_learned(self._plan.quirks.held.list_known(), self.learned_quirks))
        self._plan.quirks.lasting.learn(quirks)
        self._plan.quirks.held.forget()
        # The note replaces these lines.
        noted = {f"{name}, as the server requires it" for name in quirks}
        self._report.request[:] = [line for line in self._report.request if line not in noted]
        if self.learned_quirks.get(MODEL):
            self._plan.stand_in.names.learn({MODEL: True})
            name, only = self._request.model, self._plan.server_model
            self._report_quirk(
                f"the server has no model {name}: retried with {only}, its only one, as are later requests"
            )
        if steps := [
            line for name, line in describe_steps(quirks).items() if name not in (*REPLANNING_QUIRKS, *GRAMMAR_STEPS)
        ]:
            self._report_quirk(f"retried after a rejection; applied at once from now on: {', '.join(steps)}")
        if (api := quirks.get(API)) not in (None, SAME):
            self._report_quirk(
                f"the server has {self._request.model} in another API: retried by {api}, as are later requests"
            )
        if PROMPT in quirks and (dialect := self._plan.protocol.write):
            line = (
                "the server rejected `tools` for this model: retried with them in the prompt, as are later requests; "
                f"to keep that, a profile of the model says `tools: prompt`, `dialect: {dialect.name}`"
            )
            self._report_quirk(line)
        if quirks.keys() & {*GRAMMAR_STEPS}:
            self._report_quirk("the server rejected the grammar: retried without one, as are later requests")

    def confirm_held_quirks(self) -> None:
        """Store the quirks held for this conversation for all, because the server accepted a request with them."""
        if held := self._select_used(self._plan.quirks.held.list_known()):
            self._plan.quirks.lasting.learn(held)
            self._plan.quirks.held.forget()

    def _select_used(self, steps: Mapping[str, Any]) -> Mapping[str, Any]:
        """Select the steps that the last request needed."""
        used = {*self._last_retry.applied_lines, *_ALWAYS_LEARNED, *GRAMMAR_STEPS}
        return {step: value for step, value in steps.items() if step in used}

    def _report_quirk(self, line: str) -> None:
        """Report a change that applies to later requests, too."""
        self._report.notes.append(line)

    def translate_full_window(self, error: bytes, status: int) -> Failure | None:
        """Translate the error of a prompt that is too long; None for others, or if the client knows its form."""
        tokens = read_full_window(read_error(error, status, sent=self._sent_text), len(self._received.body))
        client = self._context.client.layout.full
        if tokens is None:
            return None
        is_own = status in (200, 400) and client.sign in error.decode(errors="replace")
        if not self._context.is_bridged and (self._plan.stack.as_is or is_own):
            return None
        window, prompt = tokens
        sentence = client.sentence.format(prompt=prompt, window=window, over=prompt - window)
        line = f"the prompt is longer than the model's window: {prompt} tokens of {window}"
        self._report.notes += [line] * (line not in self._report.notes)
        return Failure(f"{sentence} ({hints.extract_message(error)})", CONTEXT_LENGTH_EXCEEDED)


@contextmanager
def pass_through_on_fault(known: Iterable[str] = ()) -> Iterator[None]:
    """Turn a fault of VTC into `RequestError`, so that the request is forwarded unchanged."""
    try:
        yield
    except RequestError:
        raise
    except Exception as error:
        logger.error("vtc: rewriting failed; the request is forwarded unchanged\n%s", format_exception(error, known))
        raise RequestError(f"{type(error).__name__}: {error}") from error


def _describe_guess(steps: Mapping[str, Any]) -> str:
    """Describe the steps of a retry after an error that named no cause."""
    return f"the server named no cause: retried with {', '.join(describe_steps(steps).values())}"


def _describe_foreign_seals(count: int) -> str:
    """Describe dropped seals of another server, model or conversation."""
    seals = format_count(count, "seal")
    return f"{seals} of past reasoning left out: VTC sent the client no such seal in this conversation"
