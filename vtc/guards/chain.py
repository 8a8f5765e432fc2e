"""The policies of one exchange, applied in order."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure, Text, Tool
from vtc.guards.arguments import Arguments
from vtc.guards.content import ContentGuard, Rule
from vtc.guards.guard import Access, Guard, NameGuard, ToolNames, UndeclaredRefusalError, describe_failure, is_name
from vtc.guards.keys import Keys
from vtc.guards.loops import Loop
from vtc.guards.patterns import Budget, Patterns, check_patterns, list_patterns
from vtc.guards.reactors import MAX_ERROR_CHARS, Reactor, Reactors


class Checking(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The check of arguments against the tool's JSON Schema."""

    coerce: bool = True
    """True if arguments that fit after lossless coercion are coerced."""
    misfit: Manner | None = None
    """Replacement of a call whose arguments do not fit; null passes the call and reports it."""


class Guards(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Policies on the calls of a model, in any dialect or API, and on its text."""

    allowed_tools: Patterns = ("*",)
    """The tools that are offered and may be called: globs, or regular expressions between slashes. A tool in a
    namespace matches as `fs.read` and `fs__read`, and as `read` if no other tool has that name."""
    denied_tools: Patterns = ()
    """The tools that are not offered and may not be called, as globs or regular expressions; a tool in a namespace
    matches by any of these names."""
    on_denied: Manner = "text"
    """Replacement of a call that is not allowed. For a client that parses calls from text, `text` acts as `steer`,
    because the client would execute the call."""
    denied_message: str = ""
    """The message of `steer`."""
    reactors: tuple[Reactor, ...] = ()
    """Rules on single calls, in order; each sees the call as changed by the rules before it."""
    arguments: Checking | None = None
    """A check of the arguments against the tool's JSON Schema; null for none."""
    content: tuple[Rule, ...] = ()
    """Filters on the visible text."""
    loop: Loop | None = None
    """A limit on the repetitions of an agent; null for none."""
    stop_repeats: bool = False
    """True if a reply is ended once it repeats one block of text: at least 20 characters, 8 times in a row and 2,000
    characters in all, outside code blocks and calls. Otherwise this is only reported."""
    on_failure: OnFailure = "refuse"
    """Fate of a call if a policy that may deny or change it fails, and of unreadable content under such a policy:
    `refuse` denies it, `pass` forwards it as without the policy. A rule that only tags or steers is skipped."""

    def __post_init__(self) -> None:
        check_patterns(self.allowed_tools, "allowed_tools")
        check_patterns(self.denied_tools, "denied_tools")

    @property
    def restricts_tools(self) -> bool:
        """True if these policies limit the tools that may be called."""
        return bool(self.denied_tools) or self.allowed_tools not in ("*", ("*",))

    @property
    def checks_calls(self) -> bool:
        """True if one of these policies is a guard on calls."""
        return next(self.build_call_guards({}), None) is not None

    @property
    def is_strict(self) -> bool:
        """True if nothing may be forwarded that these policies have not checked."""
        return any(guard.on_failure == "refuse" for guard in self.build_call_guards({}))

    @property
    def literal_tool_names(self) -> list[str]:
        """Names of tools that the policies contain literally, not as a pattern."""
        reactors = [name for reactor in self.reactors for name in list_patterns(reactor.when.tools)]
        return [name for name in (*list_patterns(self.denied_tools), *reactors) if is_name(name)]

    def build_call_guards(
        self, tools: Mapping[str, Tool], budget: Budget | None = None, names: ToolNames | None = None
    ) -> Iterator[Guard]:
        """Build the guards that check calls. They alone determine the calls that these policies can deny."""
        on_failure, names = self.on_failure, names or ToolNames(tools)
        if self.reactors:
            yield Reactors(self.reactors, tools, on_failure, budget, names)
        if self.restricts_tools:
            yield self.build_access(names)
        if self.arguments:
            coerce, misfit = self.arguments.coerce, self.arguments.misfit
            yield Arguments(tools, coerce=coerce, manner=misfit, on_failure=on_failure, budget=budget)

    def build_access(self, names: ToolNames) -> Access:
        """Build the guard on allowed and denied tools."""
        return Access(
            self.allowed_tools,
            self.denied_tools,
            self.on_denied,
            self.denied_message,
            names=names,
            on_failure=self.on_failure,
        )


CALL_GUARD_ORDER = (Reactors, Access, Arguments)
"""The order of guards on calls. Reactors are first, so that the others check the changed calls."""


class GuardChain:
    """A sequence of guards.

    If a guard raises, the failure is reported, and the guard continues with the next event. The current event passes
    unchanged, except a call that the guard must check, which is denied.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = list(guards)
        self.reads_text = any(guard.reads_text for guard in guards)
        """True if text must go through `feed`."""

    def feed(self, event: Event) -> list[Event]:
        """Pass an event through all guards."""
        events = [event]
        for guard in self._guards:
            events = [out for event in events for out in self._feed(guard, event)]
        return events

    def finish(self) -> list[Event]:
        """Return the buffered text of all guards, each passed through the guards after it."""
        events: list[Event] = []
        for guard in self._guards:
            events = [out for event in events for out in self._feed(guard, event)]
            try:
                events += guard.finish()
            except Exception as error:
                events += _handle_failure(guard, error)
        return events

    def _feed(self, guard: Guard, event: Event) -> list[Event]:
        try:
            out = guard.feed(event)
            if isinstance(event, Call) and _has_denial(out) and not guard.may_refuse(event.call.name):
                raise UndeclaredRefusalError("its `refuses` does not name this tool")
            return out
        except Exception as error:
            undeclared = isinstance(error, UndeclaredRefusalError)
            refuses = isinstance(event, Call) and (guard.on_failure == "refuse" or undeclared)
            failure = _handle_failure(guard, error, event.call.name if isinstance(event, Call) else "", refuses=refuses)
            if not isinstance(event, Call) or not refuses:
                return [*failure, event]
            message = f"The call of `{event.call.name}` was not carried out, because a policy fails on it."
            return [*failure, Denied(event.raw, event.call, "steer", message)]


def _has_denial(events: Sequence[Event]) -> bool:
    return any(isinstance(event, Denied) for event in events)


def _handle_failure(guard: Guard, error: Exception, tool: str = "", *, refuses: bool = False) -> list[Event]:
    """Report the failure of a guard, and release its buffered text."""
    held, guard.held = guard.held, ""
    reason = describe_failure("call" if tool else "text", refuses=refuses)
    failure = Intervention(
        type(guard).__name__.lower(),
        "refused" if refuses else "failed",
        tool,
        f"{reason}: {type(error).__name__}",
        str(error)[:MAX_ERROR_CHARS],
    )
    return [failure, Text(held)] if held else [failure]


def build_chain(
    configured: Sequence[Guards],
    tools: Mapping[str, Tool],
    *,
    declared: Collection[str] = (),
    is_text: bool = False,
    budget: Budget | None = None,
) -> GuardChain:
    """Build the guards on calls of all profiles of an exchange.

    `is_text` is True if the client parses calls from text. All choices of a reply share one `budget`. `declared` names
    tools of the request that are not in `tools`.
    """
    budget = budget or Budget()
    names = ToolNames([*tools, *declared])
    chained: list[Guard] = []
    on_calls = [guard for guards in configured for guard in guards.build_call_guards(tools, budget, names)]
    if is_text or on_calls:
        chained.append(NameGuard(tools))
    strict = [guards for guards in configured if guards.on_failure == "refuse"]
    rules = [reactor for guards in strict for reactor in guards.reactors if reactor.then.is_enforcing]
    checks_all = any(guards.arguments and guards.arguments.misfit for guards in strict)
    if rules or checks_all:
        chained.append(Keys(rules, tools, names, checks_all=checks_all, budget=budget))
    return GuardChain([*chained, *sorted(on_calls, key=lambda guard: CALL_GUARD_ORDER.index(type(guard)))])


def build_content_chain(rules: Sequence[Rule]) -> GuardChain:
    """Build the guards on visible text."""
    return GuardChain([ContentGuard(rule) for rule in rules])


def list_refusable_tools(configured: Sequence[Guards], known: Collection[str]) -> list[str]:
    """List the tools whose calls may be denied, among the `known` ones and those that the policies name."""
    literal_names = [name for guards in configured for name in guards.literal_tool_names]
    on_calls = [guard for guards in configured for guard in guards.build_call_guards({}, names=ToolNames(known))]
    names = dict.fromkeys([*known, *literal_names])
    return [name for name in names if any(guard.may_refuse(name) for guard in on_calls)]
