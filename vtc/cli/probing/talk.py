"""Puts a question to the model and reads the reply twice: as the server sent it, and as a client gets it through VTC.

Both are read with the API's own decoder; between them stands the very `Exchange` that the proxy runs.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from vtc.apis import Api, Reply, summary
from vtc.cli.probing.bounded import Bounded, NotAskedError
from vtc.cli.probing.finding import Outcome
from vtc.cli.probing.scenarios import Scenario
from vtc.cli.probing.server import Server
from vtc.events import NATIVE, Asked, Message
from vtc.exchange import Exchange
from vtc.json_text import encode
from vtc.profiles.planner import Planner
from vtc.profiles.thinking import COMMON_TAGS
from vtc.proxy.asker import Answer
from vtc.reporting import hints

NOTHING = Reply(Message("assistant"))


@dataclass(frozen=True)
class Heard:
    """What came of one question."""

    scenario: Scenario
    status: int = 0
    problem: str = ""
    """Why there is no reply."""
    direct: Reply = NOTHING
    """As the server sent it."""
    through: Reply = NOTHING
    """As a client gets it."""
    dialects: tuple[str, ...] = ()
    """In which VTC read the calls."""
    repairs: tuple[str, ...] = ()
    asked: bool = True
    """False if no more was asked."""
    prompted: bool = False
    """The tools stood in the prompt."""
    seconds: float = 0.0

    @property
    def refused(self) -> bool:
        """True if the server answered with an error."""
        return self.status >= 400

    @cached_property
    def faults_direct(self) -> list[str]:
        """What is wrong with the reply as the server sent it."""
        if self.problem:
            return [self.problem]
        faults = self.scenario.faults(self.direct.message.text, self.direct.message.calls)
        return [*faults, *_leaks(self.direct)] or self._broken_rules()

    @cached_property
    def faults(self) -> list[str]:
        """What is wrong with the reply as a client gets it."""
        return [*self.misses, *_leaks(self.through)]

    @cached_property
    def misses(self) -> list[str]:
        """What of the question the reply misses, as a client gets it; its thinking may stand in the text."""
        calls = self.through.message.calls
        if self.problem and not calls:
            return [self.problem]
        return self.scenario.faults(self.through.message.text, calls)

    @property
    def silent(self) -> bool:
        """True if a call was wanted and there is none of any kind, but an answer."""
        return bool(self.scenario.calls) and not (self.problem or self.through.message.calls)

    @property
    def outcome(self) -> Outcome:
        """Say in a word what became of it; an answer where a call was wanted, and not demanded, says nothing."""
        if self.refused and self.faults:
            return "refused"
        if self.silent and self.scenario.choice == "auto":
            return "seen"
        if self.faults and not (self.problem or self.scenario.calls) and self.scenario.contains:
            return "seen"
        if self.faults:
            return "broken"
        return "mended" if self.faults_direct or (self.prompted and self.scenario.calls) else "works"

    @property
    def saw(self) -> str:
        """What came, in a line for people."""
        if self.problem:
            return self.problem
        calls = ", ".join(f"{call.name}({_short(_readable(call.arguments))})" for call in self.through.message.calls)
        text = _short(self.through.message.text)
        cut = "" if self.through.complete else " (cut off: more tokens with --tokens)"
        said = "; ".join(part for part in (calls, f'text "{text}"' if text else "") if part)
        return f"{said or 'nothing'}{cut}"

    def _broken_rules(self) -> list[str]:
        calls = self.direct.message.calls
        faults = [] if self.direct.in_order else ["pieces of calls out of order"]
        ids = [call.id for call in calls]
        return faults + ["calls without ids of their own"] * (len({*filter(None, ids)}) < len(ids))


@dataclass(slots=True)
class Talk:
    """Asks one model of one server in one of its APIs."""

    asker: Bounded
    server: Server
    api: Api
    limits: dict[str, Any] = field(default_factory=dict)
    seeds: int = 0

    def ask(self, scenario: Scenario, planner: Planner, *, bare: bool = False) -> Heard:
        """Put a question as VTC would with these profiles; `bare`: as the client sent it."""
        heard, answer = self._ask(scenario, planner, bare=bare)
        if answer.status == 400 and (refused := [one for one in self.limits if one in heard.problem]):
            self.limits = {name: value for name, value in self.limits.items() if name not in refused}
            heard, _ = self._ask(scenario, planner, bare=bare)
        return heard

    def _ask(self, scenario: Scenario, planner: Planner, *, bare: bool) -> tuple[Heard, Answer]:
        self.seeds += 1
        asked = Asked(
            model=self.server.model,
            messages=scenario.messages,
            stream=scenario.stream,
            tools=scenario.tools,
            choice=scenario.choice,
            limits=self.limits,
            answer=scenario.answer,
        )
        place = self.api.place
        path = place.written(place.version, self.server.model, streams=scenario.stream)
        body = encode(self.api.ask(asked))
        facts = replace(self.server.facts, path=path)
        exchange = Exchange.open(self.api, body, facts, planner, f"probe {self.seeds}")
        sent = exchange.request()
        self.asker.about = scenario.asks
        answer = self.asker.ask(path, body if bare else sent, place.headers, place.key)
        prompted = exchange.plan.request.prompt_tools
        problem = "" if answer.ok else answer.why if answer.error else _words(answer)
        asked_it = not isinstance(answer.error, NotAskedError)
        heard = Heard(scenario, answer.status, problem, asked=asked_it, prompted=prompted, seconds=answer.seconds)
        if answer.error:
            return heard, answer
        if not answer.ok:
            mended = exchange.from_error(answer.body, 0, answer.status)
            through = mended and _read(self.api, mended[1])
            return _with(heard, exchange, through=through or NOTHING), answer
        direct = _read(self.api, answer.body)
        if direct is None:
            words = hints.words_of(answer.body) or "nothing"
            return _with(heard, exchange, problem=f"no reply of {self.api.name}: {words}"), answer
        through = _read(self.api, exchange.whole(answer.body))
        return _with(heard, exchange, direct=direct, through=through or NOTHING), answer


def _leaks(reply: Reply) -> list[str]:
    """Tell where thinking stands in the text."""
    return [f"thinking stands in the text: {close}" for _, close in COMMON_TAGS if close in reply.message.text]


def _with(heard: Heard, exchange: Exchange, **more: Any) -> Heard:
    calls = exchange.report.calls
    dialects = tuple(dict.fromkeys(call["dialect"] for call in calls if call["dialect"] != NATIVE))
    repairs = tuple(dict.fromkeys(repair for call in calls for repair in call["repairs"]))
    return replace(heard, dialects=dialects, repairs=repairs, **more)


def _read(api: Api, body: bytes) -> Reply | None:
    try:
        return summary.replies(api, body)[0]
    except (ValueError, LookupError, TypeError, AttributeError):
        return None


def _words(answer: Answer) -> str:
    said = hints.words_of(answer.body)
    return f"status {answer.status}" + (f": {said}" if said else "")


def _readable(arguments: str) -> str:
    """Write arguments with the characters that they stand for."""
    try:
        return json.dumps(json.loads(arguments), ensure_ascii=False)
    except ValueError:
        return arguments


def _short(text: str, most: int = 80) -> str:
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= most else f"{line[:most]}…"
