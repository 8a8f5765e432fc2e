"""The request as it is sent: in the server's API, ready for the server, and once more after each refusal."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from vtc.apis import Api, Request
from vtc.apis.contract import FULL
from vtc.apis.crossing import WireNames
from vtc.dialects.syntax import tool_names
from vtc.dialects.writing.history import usage
from vtc.events import Failure, Message, Tool
from vtc.exchange.asking import request as outgoing
from vtc.exchange.asking.refusals import GRAMMARS, LEAST, PLAIN, cut, full, lesson
from vtc.exchange.asking.steps import BRIDGED, StepContext
from vtc.exchange.asking.steps.limits import size
from vtc.exchange.replying.held import GrammarCheck
from vtc.exchange.replying.stages import ReplyFault
from vtc.exchange.replying.way import ReplyFactory
from vtc.profiles.plan import Plan
from vtc.profiles.planner import PROMPT
from vtc.reporting import hints
from vtc.reporting.report import Report

logger = logging.getLogger(__name__)
MOST_ASKED = 4
"""Requests in the place of one, as the server refuses one after the other."""
_ALWAYS = (PROMPT, "context", "max_tokens")
"""What is learned though it is no step of its own in the request that was taken."""
WORDS = 2000
"""Characters of a server's error that are looked at."""


class SentRequest(NamedTuple):
    """What of a request stands in the path, in some APIs."""

    model: str
    streams: bool


class RequestEncoder:
    """Encodes one request, with the steps that its server needs."""

    def __init__(
        self,
        client: Api,
        server: Api,
        request: Request,
        body: bytes,
        plan: Plan,
        way: ReplyFactory,
        report: Report,
        origin: str,
        taught: Mapping[str, Any],
    ) -> None:
        """`origin` is the server, whose own past reasoning it is told; `taught` are steps that it taught by now."""
        self._server = server
        self._crosses = server is not client
        self._request = request
        self._body = body
        self._plan = plan
        self._way = way
        self._report = report
        self._origin = origin
        self._steps: dict[str, Any] = {**(BRIDGED if self._crosses else {}), **plan.steps, **taught}
        if self._crosses and server.layout.choice is None:
            self._steps["choice"] = True
        self.taught: dict[str, Any] = {**taught}
        """What the server taught while it was asked again, be it of use or not."""
        self._took: Collection[str] = ()
        """The steps that changed what it was sent last."""
        self.asked = SentRequest(request.model, request.stream)
        """The model and the form of the reply that the server was asked for last."""
        self.sent = 0
        """The hash of what it was sent last."""
        self.left: tuple[Sequence[Message], Sequence[Tool]] = (), ()
        """The messages and tools of that."""

    def encoded(self, messages: Sequence[Message] | None) -> bytes:
        """Encode the request, with these messages or its own."""
        plan, request = self._plan, self._request
        names = WireNames(request.offer.declared if self._steps.get("names") else ())
        given = StepContext(request, self._server, names)
        if self._crosses:
            went = outgoing.crossed(request, plan, messages, self._steps, given, self._origin)
        else:
            went = outgoing.encoded(request, self._body, plan, messages, self._steps, given)
        self._way.names = given.names if given.names.changed else None
        strict = {given.names.back(tool.name): tool for tool in went.tools if tool.strict}
        self._way.held = GrammarCheck(went.constrained, strict)
        self._way.refused = self._refused if went.constrained or strict else None
        if not plan.stack.as_is:
            sent = size(request.messages if messages is None else messages, plan.offered)
            self._way.counted = partial(self._counted, sent) if sent > LEAST * PLAIN else None
        self._report.request += [line for line in went.told if line not in self._report.request]
        self._took = went.took
        self.asked = SentRequest(went.model or request.model, request.stream and not plan.buffered)
        self.sent, self.left = hash(went.body), (went.messages, went.tools)
        return went.body

    def _counted(self, size: int, tokens: int) -> None:
        """Take note of the tokens that the server counted of a prompt of so many bytes."""
        window = self._steps.get("context")
        told = cut(tokens, size, window if isinstance(window, int) else None)
        if told and told not in self._report.request:
            self._report.request.append(told)

    def _refused(self, error: bytes) -> None:
        """Learn from an error amid a reply that no grammar can be had: the client has its status and cannot wait."""
        found = lesson(200, hints.words_of(error, WORDS), self._steps)
        if steps := {step: value for step, value in (found.steps if found else {}).items() if step in GRAMMARS}:
            self._plan.lessons.learn(steps)
            told = "the server refused to decode by a grammar, amid its reply: all that follows is asked without"
            self._report.request.append(told)
            logger.warning("vtc: %s", told)

    def again(self, messages: Sequence[Message] | None, error: bytes, status: int) -> bytes | None:
        """Encode it with what the server's error teaches; None if that is nothing, or changes nothing.

        None, too, if it teaches that the tools are to stand in the prompt: then it is to be planned anew.
        """
        words, before = hints.words_of(error, WORDS), [*self._report.request]
        while found := lesson(status, words, self._steps):
            if PROMPT in found.steps:
                self.taught[PROMPT] = self._steps[PROMPT] = True
                return None
            last, self._report.request[:] = self.sent, before
            self.taught.update(found.steps)
            self._steps.update(found.steps if found.once is None else {"max_tokens": found.once})
            went = self.encoded(messages)
            if self.sent != last:
                return went
            self._report.request[:] = before
            if found.once is not None:
                break
        return None

    def corrected(self, messages: Sequence[Message] | None, reply: str, faults: Sequence[ReplyFault]) -> bytes:
        """Encode it with the model's reply, what is wrong with it, and how the calls that failed are written."""
        listed = "".join(f"\n- {reason}" for reason in dict.fromkeys(fault.quoted or fault.reason for fault in faults))
        usages = dict.fromkeys(filter(None, map(self._usage, faults)))
        shown = "".join(f"\nA call is written like this:\n{usage}" for usage in usages)
        again = "Write your call again like that, filled in." if usages else "Write the whole reply again, corrected."
        question = f"Nothing of your last reply was carried out:{listed}{shown}\n{again}"
        said = Message("assistant", (reply or "(nothing)",)), Message("user", (question,))
        return self.encoded([*(self._request.messages if messages is None else messages), *said])

    def _usage(self, fault: ReplyFault) -> str:
        """Write a call of the tool whose call failed, as the model is told to write it; empty if that is not known."""
        write, tools = self._plan.protocol.write, {tool.name: tool for tool in self._request.offer.tools}
        tool = tools.get(tool_names.resolve(fault.tool, tools) or "") if fault.tool and write else None
        return usage(write, tool) if write and tool else ""

    def forget(self) -> None:
        """Keep nothing of the conversation."""
        self.left = (), ()

    def learned(self) -> None:
        """Take note that the server took it with what its refusals taught."""
        of_use = {*self._took, *_ALWAYS, *GRAMMARS}
        taught = {step: value for step, value in self.taught.items() if step in of_use}
        self._plan.lessons.learn(taught)
        if steps := ", ".join(name for name in taught if name not in GRAMMARS):
            self._report.request.append(f"asked again, as the server refused it; done at once from now on: {steps}")
        if taught.keys() & {*GRAMMARS}:
            told = "the server refused to decode by a grammar: asked again without, as is all that follows"
            self._report.request.append(told)
            logger.warning("vtc: %s", told)

    def full(self, error: bytes, status: int) -> Failure | None:
        """Read the error of a prompt that is too long; None if it is another, or the client's API says it so itself."""
        words = error[: 4 * WORDS].decode(errors="replace")
        if not self._crosses and (self._plan.stack.as_is or FULL in words or "prompt is too long: " in words):
            return None
        return full(status, words, hints.words_of(error), len(self._body))
