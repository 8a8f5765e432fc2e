"""Plan an exchange from the request, the profiles and the user's settings (`ProfileStack`)."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace as dataclass_replace
from functools import cached_property
from itertools import chain
from typing import Any, Literal, Protocol, get_args

import msgspec
from msgspec.structs import replace

from vtc.apis.bridge import REASONING_FIELDS, ReasoningField
from vtc.dialects.constrain.constraint import Demand, Kind, render_constraint
from vtc.dialects.syntax.description import Description
from vtc.dialects.text_client import documented_tools
from vtc.events import GenerationConfig, Message, Tool, ToolOffer
from vtc.guards.chain import Guards
from vtc.guards.guard import ToolNames
from vtc.guards.reactors import add_renamed_tools
from vtc.profiles.loader import Profiles
from vtc.profiles.matching import Facts, ProfileChoice, choose_best, is_glob, list_matching, plain_model
from vtc.profiles.memory import ConversationQuirks, Learned, Memory, Quirks, merge_learned
from vtc.profiles.plan import Plan, ReadingPlan, StandIn, TextClient, Thinking, ToolProtocol
from vtc.profiles.schema import ConstraintForm, Marks, ModelProfile, ServerProfile
from vtc.profiles.settings import Settings
from vtc.profiles.stack import UNKNOWN_CLIENT, UNKNOWN_MODEL, ProfileStack, UnknownName, first_set

# Reasoning: the tags around it, and whether the prompt already opened the first tag.
#
# Many templates end the prompt with `<think>`, so that only `</think>` appears in the reply. Whether that is so
# follows, in this order, from the request's own switches, from earlier replies of this server and model, from the
# server's profile (some servers separate the reasoning themselves) and from the model's profile. Earlier replies count
# only for the client that received them, and only if enough of them agree.


COMMON_TAGS = (("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>"))
"""Tags that models of any family write; others are read only for models whose profiles name them."""


def plan_reasoning(
    model: ModelProfile | None,
    server: ServerProfile,
    facts: Facts,
    memory: Memory | None,
    *,
    asked: bool | None = None,
    text_client: bool = False,
    shown: bool = False,
) -> Thinking:
    """Decide how the reasoning of a reply is read; `model` is None if it is not known.

    `asked` is the request's switch for thinking: true, false, or None without one.

    An unknown model keeps its tags in the text, unless its replies have `shown` that they surround reasoning; but calls
    between them never count. If the prompt is not known to open the tag, a whole reply shows whether it did, and the
    observation applies to the next stream.
    """
    others = () if text_client else COMMON_TAGS  # such clients parse tags that they prompt for themselves
    own = model.reasoning if model else None
    tags = tuple(dict.fromkeys([*((own.open, end) for end in (own.close, *own.ends)), *others])) if own else others
    to: Literal["reasoning_content", "keep", "drop"] = own.to if own else "reasoning_content" if shown else "keep"
    prefilled = own is not None and (own.prefilled is True or (own.prefilled == "asked" and bool(asked)))
    never = model is not None and own is None
    if asked is False or never or not tags or (server.parts_reasoning and not prefilled):
        return Thinking(tags, to, never=never or asked is False)
    learned = memory.get_learned(*facts.whose, facts.model, str(asked)) if memory is not None else Learned()
    begins_inside = learned.begins_inside
    if begins_inside is None:
        begins_inside = prefilled and not server.parts_reasoning
    return Thinking(tags, to, prefilled, begins_inside, may_show=not prefilled, learned=learned)


def find_reasoning_field(learned: Learned) -> ReasoningField:
    """Return the field that last carried reasoning in this server's replies."""
    return next((field for field in REASONING_FIELDS if field == learned.thoughts), REASONING_FIELDS[0])


# Recognize an unknown model by its replies: by the marks of a known model, and by tags around reasoning.


_BEGINNING = 80
"""Characters of a reply that may contain its first mark."""


def _list_beginnings(messages: Iterable[Message]) -> Iterator[tuple[str, str]]:
    """Yield the beginning and the first text of each past reply of a conversation."""
    for message in messages:
        texts = [part for part in message.content if type(part) is str] if message.role == "assistant" else ()
        if texts and texts[0]:
            yield texts[0][:_BEGINNING].lstrip(), texts[0]


def has_reasoning_reply(messages: Iterable[Message]) -> bool:
    """Return True if a past reply began with one of the common reasoning tags, and closed it."""
    return any(
        begins.startswith(opened) and closed in text
        for begins, text in _list_beginnings(messages)
        for opened, closed in COMMON_TAGS
    )


def recognize_model(
    models: Sequence[ModelProfile], messages: Iterable[Message], learned: Learned
) -> ModelProfile | None:
    """Find the known model whose marks the replies have; only its settings for reading replies are used."""
    marks = [(model, model.shown_by) for model in models]
    called = (model for model, shown_by in marks if learned.dialect in shown_by.dialects)
    begun = (
        model
        for begins, _ in _list_beginnings(messages)
        for model, shown_by in marks
        if shown_by.begins and begins.startswith(shown_by.begins)
    )
    if (model := next(chain(called, begun), None)) is None:
        return None
    keys = ("accept", "blocks", "reasoning", "recalls", "markers", "answer", "special_tokens", "description")
    return replace(UNKNOWN_MODEL, **{key: getattr(model, key) for key in keys})


# Transport of tools and calls between client and model: as fields of the API, or as text in a dialect.


TEXT_DIALECT = "cline"
"""The dialect of a text client whose profile names none."""


class RequestFacts(Protocol):
    """The parts of a request that a plan depends on."""

    model: str
    offer: ToolOffer
    generation: GenerationConfig
    stream: bool
    unliftable: str

    @property
    def messages(self) -> Sequence[Message]:
        """The conversation."""
        ...


def plan_native_protocol(profiles: Profiles, stack: ProfileStack, request: RequestFacts) -> ToolProtocol:
    """Plan the transport for a client that sends tools and receives calls in the API's own fields."""
    model, dialect = stack.model, profiles.dialects[stack.dialect]
    offer = request.offer
    allowed = bool(offer.tools) and offer.choice != "none"
    prompted = stack.tools == "prompt" and (offer.tools or _has_calls(request.messages))
    write = dialect if prompted else None
    # A model that is not prompted in a dialect writes the dialects that its profile accepts.
    named = model.accept == "auto" and stack.known_model
    expected = [dialect] if write or stack.settings.dialect or named else []
    expected += _list_block_dialects(profiles, stack)
    dialects = list_dialects(profiles, model, *expected) if allowed else ()
    why = []
    written = write.name if write else ""
    answers = {dialect.name for dialect in dialects if dialect.is_json_reply and dialect.name != written}
    if request.generation.answer and answers:
        dialects = tuple(dialect for dialect in dialects if dialect.name not in answers)
        expected = [dialect for dialect in expected if dialect.name not in answers]
        why.append("the request asks for JSON: an object that is the whole reply is no call")
    if write:
        why.append(f"the model knows no tools: conversation{' and tools' * allowed} written as {write.name}")
    if dialects:
        why.append(_describe_dialects(dialects, model, *expected))
    else:
        why.append("nothing is read: the request " + ("forbids calls" if offer.tools else "offers no tools"))
    return ToolProtocol(
        tools=tuple(offer.tools),
        dialects=dialects,
        write=write,
        prompt_tools=bool(write) and allowed,
        max_calls=1 if not offer.parallel else model.max_calls,
        limits_native=bool(offer.tools) and (not offer.parallel or model.max_calls is not None),
        why=tuple(why),
    )


def plan_text_protocol(profiles: Profiles, stack: ProfileStack, documented: Sequence[Tool]) -> ToolProtocol:
    """Plan the transport for a client that documents tools in its prompt and parses calls from the text."""
    model, dialect = stack.model, profiles.dialects[stack.dialect]
    own = profiles.dialects[stack.client.dialect or TEXT_DIALECT]
    if any(guards.checks_calls for guards in stack.guards):
        own = replace(own, in_code="call")  # such clients execute calls in code blocks, too
    client = TextClient(own, stack.client)
    if not documented and not any(guards.is_strict for guards in stack.guards):
        reason = "no tools are found in its prompt, so its text is left alone; the server's own calls become text"
        return ToolProtocol(client_text=client, why=(reason,))
    tools = first_set(stack.settings.tools, "native" if model.promote else "", otherwise=stack.tools)
    promote = tools == "native" and (model.promote or stack.settings.tools == "native")
    write = dialect if tools == "prompt" and dialect is not own else None
    expected = [write, own] if write else [own, dialect] if stack.settings.dialect else [own]
    expected += _list_block_dialects(profiles, stack)
    dialects = list_dialects(profiles, model, *expected)
    why = []
    if promote:
        why.append(f"the model is given the {len(documented)} documented tools as `tools`, calls go back as {own.name}")
    elif write:
        why.append(f"conversation and tools are written as {write.name}, calls go back as {own.name}")
    return ToolProtocol(
        tools=tuple(documented),
        dialects=dialects,
        write=write,
        prompt_tools=bool(write),
        promote=promote,
        client_text=client,
        max_calls=stack.max_calls,
        why=(*why, _describe_dialects(dialects, model, *expected)),
    )


BLOCK_DIALECT = "json-block"
"""The dialect of calls that are JSON in a code block at the end of the reply."""


def _list_block_dialects(profiles: Profiles, stack: ProfileStack) -> list[Description]:
    """Return the dialect for calls in code blocks, if the settings enable it."""
    blocks = first_set(stack.settings.blocks, otherwise=stack.model.blocks)
    return [profiles.dialects[BLOCK_DIALECT]] if blocks == "last" else []


def list_token_dialects(model: ModelProfile) -> frozenset[str]:
    """Name the dialects whose special tokens are the model's own."""
    return frozenset(model.accept if model.special_tokens and model.accept != "auto" else ())


def list_dialects(profiles: Profiles, model: ModelProfile, *first: Description) -> tuple[Description, ...]:
    """List the dialects to read: the expected ones, then all others that no model writes by chance.

    If two dialects match the same text, the more common one is named.
    """
    own = () if model.accept == "auto" else model.accept
    read: dict[str, Description] = {}
    known = (profiles.dialects[name] for name in own)
    for dialect in (*first, *known, *profiles.rescued):
        read.setdefault(dialect.name, replace(dialect, fenced=True) if dialect.name in own else dialect)
    return tuple(read.values())


def _describe_dialects(dialects: Sequence[Description], model: ModelProfile, *first: Description) -> str:
    """Name the expected dialects, and count the others."""
    own = () if model.accept == "auto" else model.accept
    names = list(dict.fromkeys([*(dialect.name for dialect in first), *own]))
    others = len(dialects) - len(names)
    ways = [", ".join(names)] * bool(names) + [f"any of {others} {'other ' * bool(names)}dialects"] * bool(others)
    return f"calls are read as {' or as '.join(ways)}"


def _has_calls(messages: Iterable[Message]) -> bool:
    return any(message.calls or message.role == "tool" for message in messages)


# Grammars for servers that constrain the reply.
#
# A grammar never replaces the response format of the client, and never applies to reasoning: a grammar that begins in
# the middle of the reasoning would cut it off.


GRAMMAR_KINDS: dict[ConstraintForm, Kind] = {
    "structural_tag": "structural_tag",
    "gbnf": "gbnf",
    "gbnf_string": "gbnf",
    "gbnf_format": "gbnf",
    "json_schema": "json_schema",
}
"""The kind of grammar in each form of a request."""
assert set(GRAMMAR_KINDS) == {*get_args(ConstraintForm.__value__)}


class ReplyConstraint(msgspec.Struct, frozen=True):
    """The parts of a reply's grammar."""

    form: ConstraintForm
    dialect: Description
    tools: tuple[Tool, ...]
    demand: Demand

    def render(self) -> Any:
        """Render the grammar, as text or plain data. Raises `Inexpressible` with the reason if there is none."""
        return render_constraint(GRAMMAR_KINDS[self.form], self.dialect, self.tools, self.demand)


def plan_constraint(form: ConstraintForm, plan: Plan, *, has_form: bool) -> tuple[ReplyConstraint | None, str]:
    """Plan the grammar of a request whose tools are in the prompt; return it, or None, with a line that explains why.

    The line is empty if nobody would expect a grammar. `has_form` is true if the request has its own response format.
    """
    protocol, wish, demanded = plan.protocol, plan.stack.settings.constrain, plan.demands
    if protocol.write is None or not protocol.prompt_tools or not plan.offered or wish == "off":
        return None, ""
    if wish == "required" and not demanded:
        return None, "no grammar: no call is demanded (vtc_constrain=auto constrains calls in free text, too)"
    if protocol.write.unconstrained:
        return None, f"no grammar: dialect {protocol.write.name}: {protocol.write.unconstrained}"
    if has_form:
        return None, "no grammar: the request says the form of its answer itself"
    if plan.reading.thinking.begins_inside and not form.startswith("gbnf"):
        return None, "no grammar: replies begin with thoughts, and the server may not wait for their end"
    extent = "calls alone may be written" if demanded else "calls in free text are held to it"
    line = f"a grammar of {protocol.write.name} is to be sent ({form}): {extent}"
    return make_constraint(form, protocol.write, plan), line


def make_constraint(form: ConstraintForm, dialect: Description, plan: Plan) -> ReplyConstraint:
    """Collect the parts of the reply's grammar."""
    thinking = plan.reading.thinking
    demand = Demand(
        calls_only=plan.demands,
        allows_multiple=plan.protocol.max_calls != 1,
        reasoning_tags=() if thinking.never else thinking.tags,
        reasoning_closers=tuple(close for _, close in thinking.tags[:1] if thinking.may_begin_inside),
    )
    tools = tuple(tool for tool in plan.offered if tool.name == plan.tool_choice) or plan.offered
    return ReplyConstraint(form, dialect, tools, demand)


MODEL = "model"
"""The quirk that the server has no model of the requested name: its only model replaces it."""
PROMPT = "prompt"
"""The quirk that the server cannot parse its own model's calls: the tools go into the prompt."""
API = "api"
"""The quirk that the server has the model only in another API: its name, or `SAME` if that failed, too."""
SAME = "same"
REPLANNING_QUIRKS = (PROMPT, MODEL, API)
"""The quirks that require a new plan."""


def find_agent_pattern(agent: str, patterns: Iterable[str]) -> str | None:
    """Return the first pattern that a User-Agent contains, ignoring case; None if it contains none."""
    return next((pattern for pattern in patterns if pattern and pattern.casefold() in agent.casefold()), None)


CHOSEN_KINDS = ("client", "model", "server")
"""The kinds of profiles of which one is chosen for an exchange, by the setting of the same name or by matching."""


class Planner:
    """Plans exchanges; replaced when profiles or settings change. Raises `UnknownName`."""

    def __init__(self, profiles: Profiles, settings: Settings, listed: Sequence[str] = ()) -> None:
        """Check that the profiles named by the settings exist. `listed` are the server's models, if known."""
        self.profiles = profiles
        self.settings = settings
        self._listed = {plain_model(name): name for name in listed}
        for kind in (*CHOSEN_KINDS, "dialect"):
            name, known = getattr(settings, kind), getattr(profiles, f"{kind}s")
            if name and name not in known:
                raise UnknownName(kind, name, tuple(known))

    def with_settings(self, given: Mapping[str, Any], listed: Sequence[str] = ()) -> Planner:
        """Make a planner with more settings, as plain data; the changed settings of this planner have priority.

        Raises ValueError.
        """
        settings = msgspec.convert({**given, **self.settings.list_changed()}, Settings)
        return self if settings == self.settings and not listed else Planner(self.profiles, settings, listed)

    def plan(
        self, facts: Facts, request: RequestFacts, memory: Memory | None = None, taught: Mapping[str, Any] | None = None
    ) -> Plan:
        """Plan the exchange of a request with these facts.

        `memory` holds facts about servers; `taught` are the quirks learned from rejections of this request.
        """
        # Step 1: Choose the model on the server, and the profiles.
        server_model, stand_in = self._find_model(facts, memory, taught or {})
        facts = dataclass_replace(facts, model=server_model) if server_model else facts
        quirks = memory.get_quirks(*facts.whose, facts.model) if memory else Quirks()
        learned = merge_learned(quirks.list_known(), taught or {})
        seen = memory.get_learned(*facts.whose, facts.model, "thoughts") if memory else Learned()
        stack, why = self._find_profiles(facts, prompted=bool(learned.get(PROMPT)), api=learned.get(API, SAME))
        if stack.known_model is None and (model := recognize_model(self._marked, request.messages, seen)):
            stack = replace(stack, model=model)
            why.append(f"its replies are those of {model.description}, and are read so")
        # Step 2: Plan the transport of tools and calls, and the tools that the model is offered.
        protocol = self._plan_protocol(stack, facts, request)
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
            shown=stack.known_model is None and has_reasoning_reply(request.messages),
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
            quirks=ConversationQuirks(quirks),
            thoughts=stack.server.thoughts or find_reasoning_field(seen),
            buffered=stack.unstreamed and request.stream and bool(tools),
            server_model=server_model,
            stand_in=stand_in,
        )
        # Step 4: Collect the steps that prepare the request, and the explanations.
        steps, why_grammar = _collect_steps(plan, learned, has_form=request.generation.constrained)
        changes = _explain_changes(plan, steps, learned, request.model)
        return replace(plan, steps=steps, why=(*why, *protocol.why, *why_grammar, *changes))

    def _plan_protocol(self, stack: ProfileStack, facts: Facts, request: RequestFacts) -> ToolProtocol:
        """Plan the transport of tools and calls."""
        documented, reason = _find_documented_tools(stack, facts, request)
        if request.unliftable:
            protocol = ToolProtocol(tools=tuple(request.offer.tools), why=(request.unliftable,))
        elif documented is None:
            protocol = plan_native_protocol(self.profiles, stack, request)
        else:
            protocol = plan_text_protocol(self.profiles, stack, documented)
        return replace(protocol, why=(reason, *protocol.why))

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
        if not forced:
            return choose_best(profiles, facts, self.profiles.sources)
        also = ", or recognised by `vtc run`" if kind == "server" else ""
        return ProfileChoice(profiles[forced], (f"{kind} {forced}: named by the option vtc_{kind}{also}",))


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


def _find_documented_tools(
    stack: ProfileStack, facts: Facts, request: RequestFacts
) -> tuple[Sequence[Tool] | None, str]:
    """Return the tools that a text client documents in its prompt, or None for a native client, and the reason."""
    client, patterns = stack.client, stack.settings.client_patterns
    if client.tool_protocol == "native":
        return None, f"client profile {client.name} says tool_protocol: native"
    if request.offer.tools and client.tool_protocol == "auto":
        count = len(request.offer.tools)
        return None, f"the request has {count} tool{'s' * (count != 1)}; calls go back as `tool_calls`"
    documented, unread = _collect_documented_tools(request, client.tool_sections)
    if client.tool_protocol == "text":
        return documented, f"client profile {client.name} says tool_protocol: text{unread}"
    agent = facts.user_agent[:80]
    if not patterns:
        return None, "the request declares no tools; vtc_client_patterns is empty: no text client is looked for"
    if pattern := find_agent_pattern(facts.user_agent, patterns):
        reason = f"user agent {agent!r} holds {pattern!r} and the request declares no tools: a text client{unread}"
        return documented, reason
    if documented:
        return documented, f"the system prompt documents {len(documented)} tools: a text client"
    lacking = f"user agent {agent!r} holds none of {', '.join(map(repr, patterns))}"
    return None, f"the request declares no tools, {lacking} and the prompt documents no tools{unread}"


def _collect_documented_tools(request: RequestFacts, tool_sections: tuple[str, ...]) -> tuple[tuple[Tool, ...], str]:
    """Return the tools that the system prompt documents, the first of each name, and a note on unread parts."""
    tools: dict[str, Tool] = {}
    unread = ""
    for message in request.messages:
        for part in message.content if message.role == "system" else ():
            if isinstance(part, str):
                prompt = documented_tools.find_documented_tools(part, tool_sections)
                unread = f", its prompt {prompt.unread}" if prompt.unread else unread
                for tool in prompt.tools:
                    tools.setdefault(tool.name, tool)
    return tuple(tools.values()), unread
