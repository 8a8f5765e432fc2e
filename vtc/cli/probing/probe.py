"""The probe: the order of the questions, and the proposal that is made from the replies.

The probe first asks the server about itself, then for one call with `tools`, as a client sends them. The results
become a proposal (profiles). All later questions are sent as VTC would send them with these profiles, so the proposal
is tested.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from vtc import apis
from vtc.apis import Api
from vtc.cli.probing import classification, scenarios, template
from vtc.cli.probing.bounded_asker import BoundedAsker
from vtc.cli.probing.proposal import Proposal, create_proposal
from vtc.cli.probing.scenarios import Scenario
from vtc.cli.probing.server_facts import ServerFacts, learn_server_facts
from vtc.cli.probing.talk import ProbeReply, Talk
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import choose_best
from vtc.profiles.planner import Planner
from vtc.profiles.schema import ModelProfile, ReasoningTags
from vtc.profiles.settings import Settings
from vtc.profiles.stack import UNKNOWN_MODEL
from vtc.profiles.tool_protocol import list_dialects

USUAL_DIALECTS = ("hermes", "qwen3-coder", "tag")
"""Dialects that are tried for unknown models, the most common first."""
MAX_PROMPT_DIALECTS = 3
"""Maximum number of dialects that are tried with the tools in the prompt."""
DECISIVE_SCENARIOS = {
    scenarios.SINGLE.name: "a call as proposed",
    scenarios.SINGLE.as_stream().label: "a streamed call",
    scenarios.TOOL_RESULT.name: "an answer after a tool's result",
}
"""The abilities that an agent requires, by the labels of their scenarios."""


@dataclass(slots=True, kw_only=True)
class ProbeRecord:
    """The observations of a probe."""

    server: ServerFacts
    api: Api
    base: ModelProfile | None = None
    """The profile that already matches the model."""
    template_facts: template.TemplateFacts | None = None
    native: ProbeReply | None = None
    """The reply to one request with `tools`, sent as a client sends it."""
    tools: classification.ToolSupport | None = None
    dialect: str = ""
    reasoning: classification.ReasoningFacts = field(default_factory=classification.ReasoningFacts)
    tokens: classification.SpecialTokens = field(default_factory=classification.SpecialTokens)
    prompted: dict[str, ProbeReply] = field(default_factory=dict)
    """The replies to one request with the tools in the prompt, by dialect."""
    replies: dict[str, ProbeReply] = field(default_factory=dict)
    """The replies under the proposal, by the labels of scenarios."""
    proposal: Proposal | None = None
    quirks: dict[str, str] = field(default_factory=dict)
    """Changes that VTC makes to requests because the server rejected one, each with the server's error."""
    request_count: int = 0
    stopped: str = ""
    """The reason why the probe ended early; empty if it did not."""

    @property
    def tool_mode(self) -> str:
        """How tools reach the model under the proposal: `native` or `prompt`."""
        return self.proposal.model.tools if self.proposal else "native"

    @property
    def kind(self) -> str:
        """The name of the server's profile; empty if it is unknown."""
        return self.server.profile.name if self.server.profile else ""

    def list_profile_needs(self) -> list[str]:
        """List the features that need the proposed profiles, because no option of `vtc run` sets them."""
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
        return [name for name, is_changed in changed.items() if is_changed]

    def list_replies(self) -> list[ProbeReply]:
        """List the replies to all questions that were sent."""
        replies = [self.native, *self.prompted.values(), *self.replies.values()]
        return [reply for reply in replies if reply and reply.is_asked]

    def decide_verdict(self) -> tuple[bool, str]:
        """Return True if an agent will work with the proposal, and the reason; only sent questions count."""
        if self.server.problem:
            return False, self.server.problem
        # Step 1: at least one call has to arrive.
        called = [reply for reply in self.list_replies() if reply.scenario.calls and not reply.misses]
        asked = [reply for reply in self.list_replies() if reply.scenario.calls]
        if not called:
            silent = next((reply for reply in asked if reply.is_silent), None)
            if silent:
                count = sum(reply.is_silent for reply in asked)
                replies = "1 reply" if count == 1 else f"{count} replies"
                why = f"the model called no tool in {replies}, so it is not known whether it can"
                return False, f"{why}: {silent.summary}"
            if self.stopped:
                return False, self.stopped
            return False, asked[0].faults[0] if asked and asked[0].faults else "no question was sent"
        # Step 2: each question that an agent depends on has to succeed, if it was sent.
        unasked = []
        for name, ability in DECISIVE_SCENARIOS.items():
            reply = self.replies.get(name)
            if reply is None or not reply.is_asked:
                unasked.append(ability)
            elif reply.problem and reply.faults:
                return False, f"{name}: {reply.problem}"
            elif reply.scenario.calls and reply.faults and not reply.is_silent:
                return False, f"{name}: {reply.faults[0]}"
        if unasked:
            return True, f"a call arrives; not tested: {', '.join(unasked)}"
        return True, "a call arrives, streamed or not, and the model answers its result"


@dataclass(slots=True)
class Probe:
    """A probe of one server."""

    asker: BoundedAsker
    profiles: Profiles
    tokens: int

    def run(self, *, model: str, chosen_apis: Sequence[str], server_name: str) -> ProbeRecord:
        """Send all questions. The parameters are the user's choices; empty if the probe chooses.

        `server_name` is the name of a server profile.
        """
        server = learn_server_facts(
            self.asker, self.profiles, model=model, chosen_apis=tuple(chosen_apis), server_name=server_name
        )
        api = (apis.find_api(server.apis[0]) if server.apis else None) or apis.APIS[0]
        record = ProbeRecord(server=server, api=api)
        if not server.problem:
            self.asker.use_model_timeout()
            self._run_steps(record)
        record.request_count, record.stopped = self.asker.request_count, self.asker.stopped
        return record

    def _run_steps(self, record: ProbeRecord) -> None:
        # Step 1: find the known profile of the model, and inspect the chat template.
        server, profiles = record.server, self.profiles
        record.base = choose_best(profiles.models, server.facts, profiles.sources).profile
        talk = Talk(self.asker, server, record.api, {"temperature": 0, "max_tokens": self.tokens}, record.quirks)
        tags = classification.list_reasoning_tags(profiles, record.base)
        if server.template:
            # The dialects of the model's name come first, but a template is evidence for any dialect.
            likely = list_dialects(profiles, record.base or UNKNOWN_MODEL)
            record.template_facts = template.inspect_template(
                server.template, [likely, tuple(profiles.dialects.values())], tags
            )
        # Step 2: request one call with `tools`, as a client sends them.
        record.native = talk.ask(scenarios.SINGLE, self._plan_with_options(record, tools="native"), bare=True)
        record.tools = None if self.asker.stopped else classification.classify_tools(record.native)
        if record.tools is None:
            server.problem = self.asker.stopped or f"the model gave no reply: {record.native.problem}"
            return
        # Step 3: create a proposal, and test special tokens and, if `tools` failed, tools in the prompt.
        leaked = record.native.dialects[:1] if record.tools == "leaked" else ()
        record.dialect = next(iter(leaked), "") or (record.template_facts.dialect if record.template_facts else "")
        record.proposal = create_proposal(
            profiles, model=server.model, where=server.host_and_port, base=record.base, server=server.profile
        )
        self._probe_special_tokens(record, talk)
        if record.tools in ("refused", "ignored"):
            self._probe_prompts(record, talk)
        # Step 4: complete the proposal, and send the scenarios under it.
        record.reasoning = classification.classify_reasoning(
            record.list_replies(), tags, record.template_facts.opened_tag if record.template_facts else ""
        )
        self._propose(record)
        self._ask_as_proposed(record, talk, self._list_scenarios(record))
        self._update_dialect(record)
        if not record.prompted:
            self._probe_prompts(record, talk)
        self._ask_as_proposed(record, talk, [scenarios.LONG])  # last, because it may take long

    def _plan_with_options(self, record: ProbeRecord, **settings: str) -> Planner:
        """Build a planner in which options of the user choose these settings."""
        return Planner(self.profiles, Settings(server=record.kind, **settings))  # type: ignore[arg-type]

    def _probe_special_tokens(self, record: ProbeRecord, talk: Talk) -> None:
        """Find if the server keeps the marker of a call, at first without and then with its profile's fields."""
        assert record.proposal
        names = [
            record.dialect,
            *(record.base.accept if record.base and record.base.accept != "auto" else ()),
            "hermes",
        ]
        marker = classification.find_call_marker(self.profiles.dialects[name] for name in names if name)
        without_fields = record.proposal.copy_with(model={"special_tokens": False})
        question = scenarios.build_echo_scenario(marker)
        reply = talk.ask(question, without_fields.build_planner(self.profiles))
        if not reply.is_asked:
            return
        support, repaired = classification.classify_special_token(reply, marker), False
        if support == "dropped" and record.proposal.server.special_tokens:
            with_fields = record.proposal.copy_with(model={"special_tokens": True})
            reply = talk.ask(question, with_fields.build_planner(self.profiles))
            repaired = classification.classify_special_token(reply, marker) == "kept"
        record.tokens = classification.SpecialTokens(marker, support, repaired)

    def _probe_prompts(self, record: ProbeRecord, talk: Talk) -> None:
        """Request a call with the tools in the prompt, in the most likely dialects."""
        own = [record.base.dialect] if record.base else []
        for name in [*dict.fromkeys([*own, record.dialect, *USUAL_DIALECTS])]:
            if name and len(record.prompted) < MAX_PROMPT_DIALECTS:
                planner = self._plan_with_options(record, tools="prompt", dialect=name)
                record.prompted[name] = talk.ask(scenarios.SINGLE, planner)

    def _propose(self, record: ProbeRecord) -> None:
        """Update the proposed profiles with the observations."""
        proposal = record.proposal
        assert proposal
        assert record.native
        # Step 1: choose native tools, unless only tools in the prompt led to a call.
        prompt_dialect = next((name for name, reply in record.prompted.items() if not reply.misses), "")
        if record.tools in ("parsed", "leaked") or not prompt_dialect:
            tool_mode, why = "native", f"the request with `tools` was answered: {record.tools}"
            if record.tools in ("refused", "ignored"):
                why = f"`tools` were {record.tools}, and no dialect in the prompt led to a call either"
        else:
            tool_mode, why = "prompt", f"`tools` were {record.tools}: {record.native.summary}"
            record.dialect = prompt_dialect
        proposal = proposal.copy_with(model={"tools": tool_mode}, model_tools=why)
        # Step 2: choose the dialect of the prompt and the dialects to parse.
        if dialect := prompt_dialect or record.dialect:
            accept = () if proposal.model.accept == "auto" else proposal.model.accept
            evidence = "the template writes it"
            if prompt_dialect:
                evidence = "the model called in it"
            elif record.tools == "leaked":
                evidence = "the call arrived in it"
            proposal = proposal.copy_with(
                model={
                    "dialect": prompt_dialect or proposal.model.dialect,
                    "accept": tuple(dict.fromkeys([dialect, *record.native.dialects, *accept])),
                },
                model_accept=f"{dialect}: {evidence}",
            )
        if prompt_dialect:
            proposal = proposal.copy_with(model_dialect="the model called with the tools in the prompt in this dialect")
        # Step 3: describe the reasoning, the special tokens and the APIs.
        proposal = _propose_reasoning(proposal, record.reasoning)
        if record.tokens.repaired:
            proposal = proposal.copy_with(
                model={"special_tokens": True},
                model_special_tokens=f"{record.tokens.marker} was dropped, but kept with the server profile's fields",
                server_special_tokens="these fields kept special tokens in the text",
            )
        if record.server.apis:
            proposal = proposal.copy_with(
                server={"api": record.server.apis}, server_api="these paths answered a request, others did not"
            )
        record.proposal = proposal

    def _update_dialect(self, record: ProbeRecord) -> None:
        """Use the dialect of the first reply that kept special tokens, if the reply before lacked them."""
        first = record.replies.get(scenarios.SINGLE.as_stream().label)
        if record.proposal and record.tokens.repaired and record.tools == "leaked" and first and first.dialects:
            record.dialect = first.dialects[0]
            accept = tuple(dict.fromkeys([record.dialect, *record.proposal.model.accept]))
            why = f"{record.dialect}: the call arrived in it when its markers were kept"
            record.proposal = record.proposal.copy_with(model={"accept": accept}, model_accept=why)

    def _list_scenarios(self, record: ProbeRecord) -> list[Scenario]:
        """List the scenarios to send under the proposal; those of `DECISIVE_SCENARIOS` come first."""
        listed: list[Scenario] = []
        if record.list_profile_needs():  # otherwise the single call was already sent as proposed
            listed.append(scenarios.SINGLE)
        listed += [
            scenarios.SINGLE.as_stream(),
            scenarios.TOOL_RESULT,
            scenarios.PARALLEL,
            scenarios.PARALLEL.as_stream(),
        ]
        for scenario in scenarios.SCENARIOS.values():
            if scenario.compared and scenario not in (*listed, scenarios.SINGLE):
                listed.append(scenario)
        listed += [scenarios.REQUIRED, scenarios.FORBIDDEN]
        if record.tool_mode == "native":
            listed += [scenarios.SCHEMAS, scenarios.STRICT]
        listed.append(scenarios.CONSTRAINED)
        return listed

    def _ask_as_proposed(self, record: ProbeRecord, talk: Talk, questions: Sequence[Scenario]) -> None:
        """Send questions under the proposal; the earlier reply to the single call is reused if it was sent this way."""
        assert record.proposal
        assert record.native
        planner = record.proposal.build_planner(self.profiles)
        known = (
            record.prompted.get(record.proposal.model.dialect, record.native)
            if record.tool_mode == "prompt"
            else record.native
        )
        record.replies.setdefault(scenarios.SINGLE.name, known)
        for scenario in questions:
            record.replies[scenario.label] = talk.ask(scenario, planner)


def _propose_reasoning(proposal: Proposal, reasoning: classification.ReasoningFacts) -> Proposal:
    """Add the form of the reasoning to a proposal."""
    if reasoning.style in ("raw", "prefilled"):
        tags = ReasoningTags(open=reasoning.open, close=reasoning.close, prefilled=reasoning.style == "prefilled")
        place = "was in the text"
        if reasoning.style == "prefilled":
            place = f"was open when the reply began, and {reasoning.close} ended it"
        return proposal.copy_with(
            model={"reasoning": tags},
            server={"parts_reasoning": False},
            model_reasoning=f"{reasoning.open} {place}",
            server_parts_reasoning="reasoning arrived in the text",
        )
    if reasoning.style == "parted":
        field = "reasoning" if reasoning.field == "reasoning" else "reasoning_content"
        return proposal.copy_with(
            server={"parts_reasoning": True, "thoughts": field},
            server_parts_reasoning="reasoning arrived separately from the text",
            server_thoughts=f"the field was {reasoning.field or 'the usual one'}",
        )
    return proposal
