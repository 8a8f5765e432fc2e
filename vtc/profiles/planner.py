"""Plan an exchange from the request, the profiles and the user's settings (`ProfileStack`)."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace as dataclass_replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from vtc.dialects import Description
from vtc.guards.chain import Guards
from vtc.guards.guard import ToolNames
from vtc.guards.reactors import add_renamed_tools
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, ProfileChoice, choose_best, is_glob, list_matching, plain_model
from vtc.profiles.memory import HeldQuirks, KnownQuirks, Learned, Memory, Quirks, merge_learned
from vtc.profiles.plan import Plan, ReadingPlan, StandIn, Thinking, ToolProtocol
from vtc.profiles.reasoning_plan import find_reasoning_field, plan_reasoning
from vtc.profiles.recognition import recognize_model
from vtc.profiles.reply_constraint import plan_constraint
from vtc.profiles.schema import Marks, ModelProfile, ServerProfile
from vtc.profiles.settings import Settings
from vtc.profiles.stack import UNKNOWN_CLIENT, UNKNOWN_MODEL, ProfileStack, UnknownName
from vtc.profiles.tool_protocol import RequestFacts, list_token_dialects, plan_protocol

MODEL = "model"
"""The quirk that the server has no model of the requested name: its only model replaces it."""
PROMPT = "prompt"
"""The quirk that the server cannot parse its own model's calls: the tools go into the prompt."""
API = "api"
"""The quirk that the server has the model only in another API: its name, or `SAME` if that failed, too."""
SAME = "same"
REPLANNING_QUIRKS = (PROMPT, MODEL, API)
"""The quirks that require a new plan."""


CHOSEN_KINDS = ("client", "model", "server")
"""The kinds of profiles of which one is chosen for an exchange, by the setting of the same name or by matching."""


class ServerModels(NamedTuple):
    """A server's statements about its models."""

    names: tuple[str, ...] = ()
    """The models that it lists; empty if unknown."""
    real_names: Mapping[str, tuple[str, ...]] = MappingProxyType({})
    """The names of the models behind aliases (`collect_real_names`)."""
    dialects: Mapping[str, Description] = MappingProxyType({})
    """The dialects derived from chat templates of models without a profile, by their plain names."""

    def has(self, model: str) -> bool:
        """Return True if the server lists a model."""
        return plain_model(model) in map(plain_model, self.names)

    def find_dialect(self, model: str) -> Description | None:
        """Find the dialect of a model. A server with a single model uses it for any name."""
        if not self.dialects:
            return None
        name = self.names[0] if len(self.names) == 1 and not self.has(model) else model
        return self.dialects.get(plain_model(name))


NO_MODELS = ServerModels()


class Planner:
    """Plans exchanges; replaced when profiles or settings change. Raises `UnknownName`."""

    def __init__(self, profiles: Profiles, settings: Settings, models: ServerModels = NO_MODELS) -> None:
        """Check that the profiles named by the settings exist. `models` are those of the server, as far as known."""
        self.profiles = profiles
        self.settings = settings
        self._models = models
        self._listed = {plain_model(name): name for name in models.names}
        for kind in (*CHOSEN_KINDS, "dialect"):
            name, known = getattr(settings, kind), getattr(profiles, f"{kind}s")
            if name and name not in known:
                raise UnknownName(kind, name, tuple(known))

    def with_settings(self, given: Mapping[str, Any], models: ServerModels = NO_MODELS) -> Planner:
        """Make a planner with more settings, as plain data; the changed settings of this planner have priority.

        Raises ValueError.
        """
        settings = msgspec.convert({**given, **self.settings.list_changed()}, Settings)
        if settings == self.settings and models == NO_MODELS:
            return self
        return Planner(self.profiles, settings, models)

    def plan(
        self, facts: Facts, request: RequestFacts, memory: Memory | None = None, taught: Mapping[str, Any] | None = None
    ) -> Plan:
        """Plan the exchange of a request with these facts.

        `memory` holds facts about servers; `taught` are the quirks learned from rejections of this request.
        """
        # Step 1: Choose the model on the server, and the profiles.
        server_model, stand_in = self._find_model(facts, memory, taught or {})
        facts = dataclass_replace(facts, model=server_model) if server_model else facts
        if memory and (real_names := memory.get_real_names(lambda: facts.model_key)):
            facts = dataclass_replace(facts, real_names=real_names)
        quirks = memory.get_quirks(*facts.whose, facts.model) if memory else Quirks()
        learned = merge_learned(quirks.list_known(), taught or {})
        seen = memory.get_learned(*facts.whose, facts.model, "thoughts") if memory else Learned()
        stack, why = self._find_profiles(facts, prompted=bool(learned.get(PROMPT)), api=learned.get(API, SAME))
        if stack.known_model is None and (model := recognize_model(self._marked, request.messages, seen)):
            stack = replace(stack, model=model)
            why.append(f"its replies are those of {model.description}, and are read so")
        # Step 2: Plan the transport of tools and calls, and the tools that the model is offered.
        protocol = plan_protocol(self.profiles, stack, facts, request)
        tools = protocol.by_name
        withheld = _find_withheld(stack.guards, {*request.offer.declared, *tools})
        offered = tuple(tool for tool in protocol.tools if tool.name not in withheld)
        # A call cannot be demanded if its tool is not offered.
        tool_choice = request.offer.choice if offered and request.offer.choice not in withheld else "auto"
        # Step 3: Plan the reading of the reply.
        as_text = protocol.client_text is not None
        thoughts = plan_reasoning(
            stack.known_model,
            stack.server,
            facts,
            memory,
            asked=request.generation.thinks,
            text_client=as_text,
        )
        plan = Plan(
            stack=stack,
            protocol=protocol,
            reading=self._plan_reading(stack, protocol, thoughts),
            offered=offered,
            withheld=withheld,
            unoffered=frozenset(request.offer.declared) - tools.keys(),
            tool_choice=tool_choice,
            learned=seen,
            quirks=KnownQuirks(quirks, HeldQuirks()),
            thoughts=stack.server.thoughts or find_reasoning_field(seen),
            buffered=stack.is_unstreamed and request.stream and bool(tools),
            server_model=server_model,
            stand_in=stand_in,
        )
        # Step 4: Collect the steps that prepare the request, and the explanations.
        steps, why_grammar = _collect_steps(plan, learned, has_form=request.generation.constrained)
        changes = _explain_changes(plan, steps, learned, request.model)
        return replace(plan, steps=steps, why=(*why, *protocol.why, *why_grammar, *changes))

    def _plan_reading(self, stack: ProfileStack, protocol: ToolProtocol, thoughts: Thinking) -> ReadingPlan:
        """Plan the reading of the reply's text."""
        unknown_tools, echo, tools = stack.unknown_tools, stack.echo, protocol.by_name
        if protocol.client_text and unknown_tools == "allow":
            unknown_tools = "text"  # such a client shows unknown tools as text itself
        if protocol.client_text and echo == "text":
            echo = "steer"  # such a client would execute calls that it finds in the text
        reactors = [reactor for guards in stack.guards for reactor in guards.reactors]
        return ReadingPlan(
            dialects=protocol.dialects,
            tools=add_renamed_tools(reactors, tools) if reactors else tools,
            lenient=stack.lenient,
            unknown_tools=unknown_tools,
            echo=echo,
            own=list_token_dialects(stack.model),
            max_call_bytes=self.settings.max_call_bytes,
            thinking=thoughts,
            markers=stack.model.markers,
            answer=(stack.model.answer.open, stack.model.answer.close),
        )

    @cached_property
    def _marked(self) -> tuple[ModelProfile, ...]:
        """The models that can be recognized by marks in their replies."""
        return tuple(model for model in self.profiles.models.values() if model.shown_by != Marks())

    @cached_property
    def has_lent_keys(self) -> bool:
        """True if any server's profile has a key for clients that send none."""
        return any(server.key_env for server in self.profiles.servers.values())

    def find_server(self, facts: Facts) -> ServerProfile | None:
        """Find the profile of a request's server; None if no profile matches."""
        server: ServerProfile | None = self._choose("server", facts).profile
        return server

    def list_apis(self, facts: Facts) -> tuple[str, ...]:
        """List the known APIs of a request's server; empty if it is sent the API of each client."""
        return self._find_profiles(facts)[0].apis

    def has_api(self, facts: Facts, api: str) -> bool:
        """Return True if the server of a request is known or assumed to speak an API."""
        apis = self.list_apis(facts)
        return not apis or api in apis

    def list_aliases(self, facts: Facts) -> list[str]:
        """List the model names that are mapped to others, except globs."""
        return [glob for glob, _ in self._list_alias_pairs(facts) if not is_glob(glob)]

    def can_tokenize(self, facts: Facts) -> bool:
        """Return True if the server can count the tokens of a conversation."""
        server = self.find_server(facts)
        return server is not None and server.tokenize

    def has_model_profile(self, facts: Facts) -> bool:
        """Return True if a profile of the model is known."""
        return self._choose("model", facts).profile is not None

    def find_server_model(self, facts: Facts) -> str:
        """Return the server's name for the requested model; empty if the names are the same."""
        name = facts.model.casefold()
        alias = next(
            (to for glob, to in self._list_alias_pairs(facts) if fnmatch.fnmatchcase(name, glob.casefold())), ""
        )
        return alias or (self.default_model if plain_model(facts.model) not in self._listed else "")

    def _list_alias_pairs(self, facts: Facts) -> list[tuple[str, str]]:
        """List the globs for requested models, each with the server's model."""
        server = self.find_server(facts)
        pairs = [
            (glob, name) for glob, is_pair, name in (pair.partition("=") for pair in self.settings.models) if is_pair
        ]
        return [*pairs, *(server.models.items() if server else ())]

    @cached_property
    def default_model(self) -> str:
        """The user's replacement for models that the server does not list; empty if there is none."""
        return next((name for name in reversed(self.settings.models) if "=" not in name), "")

    def _find_model(self, facts: Facts, memory: Memory | None, taught: Mapping[str, Any]) -> tuple[str, StandIn]:
        """Return the server's name for the requested model, empty if they are the same, and a stand-in.

        The stand-in is the only model of the server; it is used once the server has rejected the requested name.
        """
        names = memory.get_quirks(*facts.whose, facts.model) if memory else Quirks()
        only = [*self._listed.values()] if len(self._listed) == 1 else []
        model, stand_in = self.find_server_model(facts), next((name for name in only if name != facts.model), "")
        if not model and merge_learned(names.list_known(), taught).get(MODEL):
            model = stand_in
        return model, StandIn("" if model else stand_in, names)

    def has_strict_policy(self, facts: Facts) -> bool:
        """Return True if a policy that denies calls applies to a request with these facts."""
        return any(guards.is_strict for guards in self._find_profiles(facts)[0].guards)

    def _find_profiles(
        self, facts: Facts, *, prompted: bool = False, api: str = SAME
    ) -> tuple[ProfileStack, list[str]]:
        """Find the profiles for a request; return them with lines that explain the choice."""
        profiles = self.profiles
        clients, models, servers = self.choose_profiles(facts).values()
        client, model, server = clients.profile, models.profile, servers.profile
        policies = list_matching(profiles.policies, facts)
        why = [
            *(clients.why or ("client: no profile matches",))[:1],
            *(models.why or ("the model is not known by name: all dialects with markers of their own are read",))[:1],
            *servers.why[:1],
            *filter(None, [server.lends if server else ""]),
        ]
        why += [f"policy {policy.name}: {how}" for policy, how in policies]
        stack = ProfileStack(
            settings=self.settings,
            client=client or UNKNOWN_CLIENT,
            model=model or UNKNOWN_MODEL,
            derived=self._models.find_dialect(facts.model),
            server=server or profiles.unknown_server,
            policies=tuple(policy for policy, _ in policies),
            prompted=prompted,
            learned_api="" if api == SAME else api,
        )
        return stack, [*why, *[f"sent by {api}: the server rejected this model by another API"] * (api != SAME)]

    def choose_profiles(self, facts: Facts) -> dict[str, ProfileChoice[Any]]:
        """Choose the profiles of client, model and server."""
        return {kind: self._choose(kind, facts) for kind in CHOSEN_KINDS}

    def _choose(self, kind: str, facts: Facts) -> ProfileChoice[Any]:
        """Choose the profile of a kind: the one that the user's setting names, else the best match."""
        profiles, forced = getattr(self.profiles, f"{kind}s"), getattr(self.settings, kind)
        if not forced and kind == "model":
            return self._choose_model(facts)
        if not forced:
            return choose_best(profiles, facts, self.profiles.sources)
        also = ", or recognised by `vtc run`" if kind == "server" else ""
        return ProfileChoice(profiles[forced], (f"{kind} {forced}: named by the option vtc_{kind}{also}",))

    def _choose_model(self, facts: Facts) -> ProfileChoice[ModelProfile]:
        """Choose the profile of the model by the names of the model behind an alias.

        A profile of the user for the requested name has priority.
        """
        models, sources = self.profiles.models, self.profiles.sources
        asked = choose_best(models, facts, sources)
        if asked.profile and not sources["model", asked.profile.name].builtin:
            return asked
        for name in facts.real_names or self._models.real_names.get(plain_model(facts.model), ()):
            choice = choose_best(models, dataclass_replace(facts, model=name), sources)
            if choice.profile:
                note = "" if name == facts.model else f"; the server has it behind {facts.model[:80]!r}"
                return dataclass_replace(choice, why=(f"{choice.why[0]}{note}", *choice.why[1:]))
        return asked


def _find_withheld(configured: Iterable[Guards], names: Iterable[str]) -> frozenset[str]:
    """Return the names of the tools that a policy does not allow."""
    names = frozenset(names)
    access = [guards.build_access(ToolNames(names)) for guards in configured if guards.restricts_tools]
    return frozenset(name for name in names if any(rule.find_violation(name) for rule in access))


def _explain_changes(plan: Plan, steps: Mapping[str, Any], learned: Mapping[str, Any], model: str) -> Iterator[str]:
    """Explain the changes of a request for `model`: the server's name for it, quirks, and tools that are withheld."""
    if plan.server_model:
        yield f"model {model}: the server is asked for {plan.server_model}"
    if steps.get("corrections") is False:
        yield "fields that a rejection names are not corrected, by a profile (ready.corrections: false)"
    if needed := [name for name in learned if name not in ("constrain", "strict", MODEL, API)]:
        yield f"changed since the server rejected a request: {', '.join(needed)}"
    if plan.withheld:
        yield f"not offered to the model: {', '.join(sorted(plan.withheld))}"


def _collect_steps(plan: Plan, learned: Mapping[str, Any], *, has_form: bool) -> tuple[Mapping[str, Any], list[str]]:
    """Collect the steps that prepare the request; return them with lines that explain its grammar or lack of one."""
    steps = {**plan.stack.steps, **{name: value for name, value in learned.items() if name not in REPLANNING_QUIRKS}}
    wish, form = plan.stack.settings.constrain, steps.pop("constrain", None)
    if steps.pop("strict", None) and wish == "auto" and not (plan.protocol.write or has_form):
        steps["strict"] = True
    if not form:
        rejected = learned.get("constrain") is False or learned.get("strict") is False
        return steps, ["no grammar: the server rejected one before"] * (rejected and wish != "off")
    grammar, why = plan_constraint(form, plan, has_form=has_form)
    if grammar:
        steps["constrain"] = grammar
    return steps, [why] if why else []
