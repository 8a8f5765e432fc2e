"""The probe: what is asked in which order, and what is made of the replies.

First what the server says of itself, then one call with `tools` as any client sends them. What that shows becomes a
proposal (profiles), and all that follows is asked as VTC would ask with these: so what is proposed has been tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vtc import apis
from vtc.apis import Api
from vtc.cli.probing import scenarios, template, words
from vtc.cli.probing.proposal import Proposal, begin
from vtc.cli.probing.scenarios import Scenario
from vtc.cli.probing.talk import ProbeReply, ServerFacts, Talk, learn
from vtc.cli.probing.template import BoundedAsker
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import best
from vtc.profiles.planner import Planner, read_dialects
from vtc.profiles.schema import ModelProfile, ReasoningTags
from vtc.profiles.settings import UNKNOWN_MODEL, Settings

USUAL_DIALECTS = ("hermes", "qwen3-coder", "tag")
"""Tried for models of which nothing is known; most are made for the first."""
MOST_DIALECTS = 3
DECISIVE = {
    scenarios.SINGLE.name: "a call as proposed",
    scenarios.SINGLE.as_stream().label: "a streamed call",
    scenarios.FOLLOWED_UP.name: "an answer after a tool's result",
}
"""By the labels of scenarios, what an agent cannot do without."""


@dataclass(slots=True, kw_only=True)
class ProbeRecord:
    """The observations of a probe."""

    server: ServerFacts
    api: Api
    base: ModelProfile | None = None
    """The profile that the model has so far."""
    template: template.TemplateFacts | None = None
    native: ProbeReply | None = None
    """One call with `tools`, sent as a client sends it."""
    tools: words.Tools | None = None
    dialect: str = ""
    thinking: words.ThinkingWords = field(default_factory=words.ThinkingWords)
    tokens: words.SpecialTokens = field(default_factory=words.SpecialTokens)
    prompted: dict[str, ProbeReply] = field(default_factory=dict)
    """By dialect, one call with the tools in the prompt."""
    replies: dict[str, ProbeReply] = field(default_factory=dict)
    """As proposed, by the labels of scenarios."""
    proposal: Proposal | None = None
    taught: dict[str, str] = field(default_factory=dict)
    """What is done since the server refused a request, each with its error."""
    asked: int = 0
    stopped: str = ""
    """Why not all was asked."""

    @property
    def way(self) -> str:
        """How tools reach the model, as proposed."""
        return self.proposal.model.tools if self.proposal else "native"

    @property
    def kind(self) -> str:
        """The name of the server's profile; empty if it is not known."""
        return self.server.profile.name if self.server.profile else ""

    def needs(self) -> list[str]:
        """Name what only the profiles that are proposed bring about, and no option of `vtc run`."""
        proposal = self.proposal
        if not proposal:
            return []
        reasoning = self.base.reasoning if self.base else None
        tokens = self.base.special_tokens if self.base else False
        parts = self.server.profile.parts_reasoning if self.server.profile else False
        changed = {
            "reasoning": proposal.model.reasoning != reasoning or proposal.server.parts_reasoning < parts,
            "special tokens": proposal.model.special_tokens != tokens,
        }
        return [name for name, is_so in changed.items() if is_so]

    def list_replies(self) -> list[ProbeReply]:
        """List all replies to what was asked."""
        replies = [*([self.native] if self.native else []), *self.prompted.values(), *self.replies.values()]
        return [reply for reply in replies if reply.asked]

    def verdict(self) -> tuple[bool, str]:
        """Tell whether an agent will work as proposed, and why: by what was asked."""
        if self.server.problem:
            return False, self.server.problem
        called = [reply for reply in self.list_replies() if reply.scenario.calls and not reply.misses]
        asked = [reply for reply in self.list_replies() if reply.scenario.calls]
        if not called:
            silent = next((reply for reply in asked if reply.silent), None)
            if silent:
                many = sum(reply.silent for reply in asked)
                replies = "1 reply" if many == 1 else f"{many} replies"
                why = f"the model called no tool in {replies}, so it is not known whether it can"
                return False, f"{why}: {silent.saw}"
            if self.stopped:
                return False, self.stopped
            return False, asked[0].faults[0] if asked and asked[0].faults else "nothing was asked"
        unasked = []
        for name, what in DECISIVE.items():
            reply = self.replies.get(name)
            if reply is None or not reply.asked:
                unasked.append(what)
            elif reply.problem and reply.faults:
                return False, f"{name}: {reply.problem}"
            elif reply.scenario.calls and reply.faults and not reply.silent:
                return False, f"{name}: {reply.faults[0]}"
        if unasked:
            return True, f"a call arrives; not asked for: {', '.join(unasked)}"
        return True, "a call arrives, streamed or not, and its result is answered"


@dataclass(slots=True)
class Probe:
    """Asks one server."""

    asker: BoundedAsker
    profiles: Profiles
    tokens: int

    def run(self, *, model: str, of: Sequence[str], named: str) -> ProbeRecord:
        """Ask all questions; `of` and `named` are the APIs and the server's profile that the user knows."""
        server = learn(self.asker, self.profiles, model=model, apis=tuple(of), named=named)
        api = (apis.find_api(server.apis[0]) if server.apis else None) or apis.APIS[0]
        seen = ProbeRecord(server=server, api=api)
        if not server.problem:
            self.asker.patient()
            self._ask(seen)
        seen.asked, seen.stopped = self.asker.asked, self.asker.stopped
        return seen

    def _ask(self, seen: ProbeRecord) -> None:
        server, profiles = seen.server, self.profiles
        seen.base = best(profiles.models, server.facts, profiles.sources).profile
        talk = Talk(self.asker, server, seen.api, {"temperature": 0, "max_tokens": self.tokens}, seen.taught)
        tags = words.tags(profiles, seen.base)
        if server.template:
            seen.template = template.look(server.template, read_dialects(profiles, seen.base or UNKNOWN_MODEL), tags)
        seen.native = talk.ask(scenarios.SINGLE, self._plan_with_options(seen, tools="native"), bare=True)
        seen.tools = None if self.asker.stopped else words.tools(seen.native)
        if seen.tools is None:
            server.problem = self.asker.stopped or f"the model gave no reply: {seen.native.problem}"
            return
        leaked = seen.native.dialects[:1] if seen.tools == "leaked" else ()
        seen.dialect = next(iter(leaked), "") or (seen.template.dialect if seen.template else "")
        seen.proposal = begin(profiles, model=server.model, where=server.where, base=seen.base, server=server.profile)
        self._special_tokens(seen, talk)
        if seen.tools in ("refused", "ignored"):
            self._prompts(seen, talk)
        seen.thinking = words.thinking(seen.list_replies(), tags, seen.template.opens if seen.template else "")
        self._propose(seen)
        self._as_proposed(seen, talk, self._rows(seen))
        self._reread(seen)
        if not seen.prompted:
            self._prompts(seen, talk)
        self._as_proposed(seen, talk, [scenarios.LONG])  # may take long

    def _plan_with_options(self, seen: ProbeRecord, **settings: str) -> Planner:
        """Plan as an option of the user's would have it."""
        return Planner(self.profiles, Settings(server=seen.kind, **settings))  # type: ignore[arg-type]

    def _special_tokens(self, seen: ProbeRecord, talk: Talk) -> None:
        assert seen.proposal
        names = [seen.dialect, *(seen.base.accept if seen.base and seen.base.accept != "auto" else ()), "hermes"]
        marker = words.marker(self.profiles.dialects[name] for name in names if name)
        kept = seen.proposal.copy_with(model={"special_tokens": False})
        question = scenarios.echoing(marker)
        heard = talk.ask(question, kept.planner(self.profiles))
        if not heard.asked:
            return
        fate, mended = words.tokens(heard, marker), False
        if fate == "dropped" and seen.proposal.server.special_tokens:
            proposal = seen.proposal.copy_with(model={"special_tokens": True})
            mended = words.tokens(talk.ask(question, proposal.planner(self.profiles)), marker) == "kept"
        seen.tokens = words.SpecialTokens(marker, fate, mended)

    def _prompts(self, seen: ProbeRecord, talk: Talk) -> None:
        """Ask for a call with the tools in the prompt, in the likeliest dialects."""
        own = [seen.base.dialect] if seen.base else []
        for name in [*dict.fromkeys([*own, seen.dialect, *USUAL_DIALECTS])]:
            if name and len(seen.prompted) < MOST_DIALECTS:
                planner = self._plan_with_options(seen, tools="prompt", dialect=name)
                seen.prompted[name] = talk.ask(scenarios.SINGLE, planner)

    def _propose(self, seen: ProbeRecord) -> None:
        """Put what was seen into the profiles."""
        proposal = seen.proposal
        assert proposal
        assert seen.native
        read = next((name for name, heard in seen.prompted.items() if not heard.misses), "")
        if seen.tools in ("parsed", "leaked") or not read:
            way, why = "native", f"the request with `tools` was answered: {seen.tools}"
            if seen.tools in ("refused", "ignored"):
                why = f"`tools` were {seen.tools}, and no dialect in the prompt brought a call either"
        else:
            way, why = "prompt", f"`tools` were {seen.tools}: {seen.native.saw}"
            seen.dialect = read
        proposal = proposal.copy_with(model={"tools": way}, model_tools=why)
        if read or seen.dialect:
            dialect = read or seen.dialect
            accept = () if proposal.model.accept == "auto" else proposal.model.accept
            first = tuple(dict.fromkeys([dialect, *(seen.native.dialects), *accept]))
            shown = "a call came in it" if read else "the call came so" if seen.tools == "leaked" else "its template"
            proposal = proposal.copy_with(
                model={"dialect": dialect if read else proposal.model.dialect, "accept": first},
                model_accept=f"{dialect}: {shown}" if read or seen.dialect else "",
            )
        if read:
            proposal = proposal.copy_with(model_dialect="a call came when the tools stood in the prompt in it")
        think = seen.thinking
        if think.how in ("raw", "prefilled"):
            tags = ReasoningTags(open=think.open, close=think.close, prefilled=think.how == "prefilled")
            place = "stood in the text" if think.how == "raw" else f"the reply began inside, and {think.close} ended it"
            proposal = proposal.copy_with(
                model={"reasoning": tags},
                server={"parts_reasoning": False},
                model_reasoning=f"{think.open} {place}",
                server_parts_reasoning="reasoning came in the text",
            )
        elif think.how == "parted":
            field = "reasoning" if think.field == "reasoning" else "reasoning_content"
            proposal = proposal.copy_with(
                server={"parts_reasoning": True, "thoughts": field},
                server_parts_reasoning="reasoning came apart from the text",
                server_thoughts=f"its name was {think.field or 'the usual one'}",
            )
        if seen.tokens.mended:
            proposal = proposal.copy_with(
                model={"special_tokens": True},
                model_special_tokens=f"{seen.tokens.marker} was dropped, and kept with what the server's profile sets",
                server_special_tokens="these fields kept special tokens in the text",
            )
        if seen.server.apis:
            proposal = proposal.copy_with(
                server={"api": seen.server.apis}, server_api="these paths answered a request, others did not"
            )
        seen.proposal = proposal

    def _reread(self, seen: ProbeRecord) -> None:
        """Take the dialect from a reply that has its special tokens, where the first had none."""
        first = seen.replies.get(scenarios.SINGLE.as_stream().label)
        if seen.proposal and seen.tokens.mended and seen.tools == "leaked" and first and first.dialects:
            seen.dialect = first.dialects[0]
            accept = tuple(dict.fromkeys([seen.dialect, *seen.proposal.model.accept]))
            why = f"{seen.dialect}: the call came so when its markers were kept"
            seen.proposal = seen.proposal.copy_with(model={"accept": accept}, model_accept=why)

    def _rows(self, seen: ProbeRecord) -> list[Scenario]:
        """List what is asked as proposed; what decides comes first."""
        rows = [scenarios.SINGLE] if seen.needs() else []  # else it has been asked so
        rows += [
            scenarios.SINGLE.as_stream(),
            scenarios.FOLLOWED_UP,
            scenarios.PARALLEL,
            scenarios.PARALLEL.as_stream(),
        ]
        compared = [scenario for scenario in scenarios.SCENARIOS.values() if scenario.compared]
        rows += [scenario for scenario in compared if scenario not in (*rows, scenarios.SINGLE)]
        rows += [scenarios.REQUIRED, scenarios.FORBIDDEN]
        return [*rows, *([scenarios.SCHEMAS, scenarios.STRICT] if seen.way == "native" else []), scenarios.CONSTRAINED]

    def _as_proposed(self, seen: ProbeRecord, talk: Talk, rows: Sequence[Scenario]) -> None:
        assert seen.proposal
        assert seen.native
        planner = seen.proposal.planner(self.profiles)
        known = seen.prompted.get(seen.proposal.model.dialect, seen.native) if seen.way == "prompt" else seen.native
        seen.replies.setdefault(scenarios.SINGLE.name, known)
        for scenario in rows:
            seen.replies[scenario.label] = talk.ask(scenario, planner)
