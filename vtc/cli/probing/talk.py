"""Ask the model a question, and parse the reply twice: as the server sent it, and as a client receives it from VTC.

The API's own decoder parses both. The reply for the client is made by the same `Session` that the proxy uses.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

from vtc.apis import Api, Reply, whole
from vtc.cli.probing.bounded_asker import BoundedAsker, NotAskedError
from vtc.cli.probing.scenarios import AGENT_HEADERS, Scenario
from vtc.cli.probing.server_facts import ServerFacts
from vtc.events import NATIVE, CanonicalRequest, Message
from vtc.exchange import Session
from vtc.exchange.asking.rejections import describe_steps, learn_steps
from vtc.exchange.asking.request import MAX_REQUESTS
from vtc.exchange.asking.server_error import read_error
from vtc.exchange.target import address_request
from vtc.json_text import encode_json
from vtc.profiles.memory import Memory
from vtc.profiles.planner import Planner
from vtc.profiles.reasoning_plan import COMMON_TAGS
from vtc.proxy.asking.asker import ServerAnswer
from vtc.proxy.asking.question import ServerQuestion
from vtc.reporting import hints

type ProbeOutcome = Literal["works", "mended", "refused", "broken", "seen", "unasked"]
"""The outcome of a question. `mended`: VTC repaired it; `seen`: neither a pass nor a failure; `unasked`: not sent."""


MAX_LISTED_MODELS = 8
"""Maximum number of other models that the error about a missing model names."""


EMPTY_REPLY = Reply(Message("assistant"))


@dataclass(frozen=True)
class ProbeReply:
    """The reply to one question, as the server sent it and as a client receives it from VTC."""

    scenario: Scenario
    status: int = 0
    problem: str = ""
    """The reason why there is no reply."""
    direct: Reply = EMPTY_REPLY
    """The reply as the server sent it."""
    via_vtc: Reply = EMPTY_REPLY
    """The reply as a client receives it from VTC."""
    dialects: tuple[str, ...] = ()
    """The dialects of the text tool calls that VTC parsed."""
    repairs: tuple[str, ...] = ()
    is_asked: bool = True
    """False if the probe had stopped, so the question was not sent."""
    prompted: bool = False
    """True if the tools were in the prompt."""
    seconds: float = 0.0
    rejection: str = ""
    """The server's error about the first request, if it accepted the corrected retry."""

    @property
    def is_rejected(self) -> bool:
        """True if the server answered with an error status."""
        return self.status >= 400

    @cached_property
    def faults_direct(self) -> list[str]:
        """The faults of the reply as the server sent it."""
        if self.problem:
            return [self.problem]
        if self.rejection:
            return [self.rejection]
        faults = self.scenario.find_faults(self.direct.message.text, self.direct.message.calls)
        return [*faults, *_list_leaked_reasoning(self.direct)] or self._list_broken_rules()

    @cached_property
    def faults(self) -> list[str]:
        """The faults of the reply as a client receives it."""
        return [*self.misses, *_list_leaked_reasoning(self.via_vtc)]

    @cached_property
    def misses(self) -> list[str]:
        """The faults of the client's reply with regard to the question; reasoning in the text is ignored."""
        calls = self.via_vtc.message.calls
        if self.problem and not calls:
            return [self.problem]
        return self.scenario.find_faults(self.via_vtc.message.text, calls)

    @property
    def is_silent(self) -> bool:
        """True if the question requests a call, but the reply contains none."""
        return bool(self.scenario.calls) and not (self.problem or self.via_vtc.message.calls)

    @property
    def outcome(self) -> ProbeOutcome:
        """The outcome of the question; a text instead of a call is `seen`, unless the request demanded a call."""
        if not self.is_asked:
            return "unasked"
        if self.is_rejected and self.faults:
            return "refused"
        if self.is_silent and self.scenario.choice == "auto":
            return "seen"
        if self.faults and not (self.problem or self.scenario.calls) and self.scenario.contains:
            return "seen"
        if self.faults:
            return "broken"
        return "mended" if self.faults_direct or (self.prompted and self.scenario.calls) else "works"

    @property
    def summary(self) -> str:
        """The reply in one line, for people."""
        if self.problem:
            return self.problem
        calls = ", ".join(
            f"{call.name}({_shorten(_unescape_arguments(call.arguments))})" for call in self.via_vtc.message.calls
        )
        text = _shorten(self.via_vtc.message.text)
        cut = "" if self.via_vtc.complete else " (cut off: more tokens with --tokens)"
        words = "; ".join(part for part in (calls, f'text "{text}"' if text else "") if part)
        return f"{words or 'nothing'}{cut}"

    def _list_broken_rules(self) -> list[str]:
        calls = self.direct.message.calls
        faults = [] if self.direct.in_order else ["pieces of calls out of order"]
        ids = [call.id for call in calls]
        if len({*filter(None, ids)}) < len(ids):
            faults.append("calls without unique ids")
        return faults


@dataclass(slots=True)
class Talk:
    """A series of questions to one model of one server in one of its APIs."""

    asker: BoundedAsker
    server: ServerFacts
    api: Api
    limits: dict[str, Any] = field(default_factory=dict)
    quirks: dict[str, str] = field(default_factory=dict)
    """Descriptions of learned quirks, each with the server's error."""
    request_number: int = 0
    memory: Memory = field(default_factory=Memory)
    has_replied: bool = False
    """True if the model has answered, so it exists at the server."""

    def ask(self, scenario: Scenario, planner: Planner, *, bare: bool = False) -> ProbeReply:
        """Send a question as VTC would with these profiles, or, if `bare`, as a client sends it.

        If the server rejects a limit (`temperature`, `max_tokens`), the question is sent again without it.
        """
        reply, answer = self._send(scenario, planner, bare=bare)
        if answer.status == 400 and (rejected := [limit for limit in self.limits if limit in reply.problem]):
            self.limits = {name: value for name, value in self.limits.items() if name not in rejected}
            reply, _ = self._send(scenario, planner, bare=bare)
        return reply

    def _send(self, scenario: Scenario, planner: Planner, *, bare: bool) -> tuple[ProbeReply, ServerAnswer]:
        """Send a question, and retry as the proxy does; return the parsed reply with the server's last answer."""
        # Step 1: open a session for the request of a client of this API.
        self.request_number += 1
        place = self.api.place
        path = place.build_path(place.version, self.server.model, streams=scenario.stream)
        body = self._encode_request(scenario)
        headers = {**place.headers, **AGENT_HEADERS.get(self.api.name, {})}
        facts = replace(self.server.facts, path=path, headers=headers)
        exchange = Session.open(self.api, body, facts, planner, f"probe {self.request_number}", self.memory)
        sent = exchange.encode_request()
        self.asker.purpose = scenario.asks

        def post(body: bytes) -> ServerAnswer:
            server_headers = {**headers}
            target = address_request(exchange, place, path, server_headers)
            server = exchange.server.place  # of another API, if a quirk says that the server serves the model there
            return self.asker.ask(ServerQuestion(path if bare else target, body, server_headers, server.key))

        # Step 2: send the request, and retry while a rejection shows how to correct it.
        answer = post(body if bare else sent)
        errors_by_quirk: dict[str, str] = {}
        first_error = ""
        for _ in range(MAX_REQUESTS - 1):
            if answer.ok or answer.error:
                break
            corrected = exchange.encode_after_rejection(answer.body, answer.status)
            if corrected is None:
                break
            error = _format_rejection(answer)
            first_error = first_error or error
            errors_by_quirk = {**dict.fromkeys(exchange.learned_quirks, error), **errors_by_quirk}
            answer = post(corrected)
        # Step 3: record the quirks that led to an accepted request.
        self.has_replied = self.has_replied or answer.ok
        self._stop_if_unknown(answer, path)
        if first_error and answer.ok:
            exchange.confirm_quirks()
            for name, line in describe_steps(exchange.plan.quirks.lasting.list_known()).items():
                self.quirks.setdefault(line, errors_by_quirk.get(name, first_error))
        # Step 4: parse the answer.
        problem = "" if answer.ok else answer.why if answer.error else _format_rejection(answer)
        reply = ProbeReply(
            scenario,
            answer.status,
            problem,
            is_asked=not isinstance(answer.error, NotAskedError),
            prompted=exchange.plan.protocol.prompt_tools,
            seconds=answer.seconds,
            rejection=first_error if answer.ok else "",
        )
        return self._parse_answer(reply, answer, exchange), answer

    def _encode_request(self, scenario: Scenario) -> bytes:
        """Encode a scenario as a client of this API would."""
        request = CanonicalRequest(
            model=self.server.model,
            messages=scenario.messages,
            stream=scenario.stream,
            tools=scenario.tools,
            choice=scenario.choice,
            limits=self.limits,
            answer=scenario.answer,
        )
        return encode_json(self.api.writer.build_request(request))

    def _parse_answer(self, reply: ProbeReply, answer: ServerAnswer, exchange: Session) -> ProbeReply:
        """Parse the answer as the server sent it, and as a client receives it; return the completed reply."""
        if answer.error:
            return reply
        if not answer.ok:
            recovered = exchange.whole.extract_from_error(answer.body, answer.status)
            via_vtc = recovered and _decode_reply(self.api, recovered.body)
            return _add_calls(reply, exchange, via_vtc=via_vtc or EMPTY_REPLY)
        direct = _decode_reply(exchange.server, answer.body)
        if direct is None:
            message = hints.extract_message(answer.body) or "nothing"
            return _add_calls(reply, exchange, problem=f"not a reply of {self.api.name}: {message}")
        via_vtc = _decode_reply(self.api, exchange.whole.rewrite(answer.body))
        return _add_calls(reply, exchange, direct=direct, via_vtc=via_vtc or EMPTY_REPLY)

    def _stop_if_unknown(self, answer: ServerAnswer, path: str) -> None:
        """Stop the probe if the server lacks this model or this path, because it would reject all questions."""
        if self.has_replied or answer.ok or answer.error or self.asker.stopped:
            return
        steps = learn_steps(read_error(answer.body, answer.status), {})
        others = [name for name in self.server.models if name != self.server.model]
        more = f" and {len(others) - MAX_LISTED_MODELS} more" if len(others) > MAX_LISTED_MODELS else ""
        listed = f"; it lists {', '.join(others[:MAX_LISTED_MODELS])}{more}" if others else ""
        if steps and "model" in steps.steps:
            why, advice = f"the server does not have the model {self.server.model}", "another with --model"
        elif answer.status in (404, 405) and not steps:
            why, advice = f"the server has nothing at {path}", "another model with --model, or another API with --api"
        else:
            return
        self.asker.stopped = f"{why} ({_format_rejection(answer)}): choose {advice}{listed}"


def _list_leaked_reasoning(reply: Reply) -> list[str]:
    """Describe the closing tags of reasoning that appear in the text."""
    return [f"the text contains reasoning: {close}" for _, close in COMMON_TAGS if close in reply.message.text]


def _add_calls(reply: ProbeReply, exchange: Session, **changes: Any) -> ProbeReply:
    """Return the reply with these changes, and with the dialects and repairs of the calls that VTC parsed."""
    calls = exchange.report.calls
    dialects = tuple(dict.fromkeys(call["dialect"] for call in calls if call["dialect"] != NATIVE))
    repairs = tuple(dict.fromkeys(repair for call in calls for repair in call["repairs"]))
    return replace(reply, dialects=dialects, repairs=repairs, **changes)


def _decode_reply(api: Api, body: bytes) -> Reply | None:
    """Decode the first reply of a body; None if it is not one of this API."""
    try:
        return whole.read_replies(api, body)[0]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _format_rejection(answer: ServerAnswer) -> str:
    message = hints.extract_message(answer.body)
    return f"status {answer.status}" + (f": {message}" if message else "")


def _unescape_arguments(arguments: str) -> str:
    """Replace the escapes of JSON arguments by the characters that they denote."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _shorten(text: str, max_chars: int = 80) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= max_chars else f"{line[:max_chars]}…"
