"""The policies of one exchange, one after the other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from vtc.events import Call, Denied, Event, Intervention, Manner, OnFailure, Text, Tool
from vtc.guards.arguments import Arguments
from vtc.guards.content import ContentGuard, Rule
from vtc.guards.guard import Access, Guard, NameGuard, ToolNames, UndeclaredRefusalError, is_name
from vtc.guards.keys import Keys
from vtc.guards.loops import Loop
from vtc.guards.patterns import Budget, Patterns, check, each
from vtc.guards.reactors import MAX_ERROR_CHARS, Reactor, Reactors


class Checking(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How arguments are checked against the tool's JSON Schema."""

    coerce: bool = True
    """Arguments that fit after lossless coercion are coerced."""
    misfit: Manner | None = None
    """What stands in the place of a call whose arguments do not fit; null passes it, and the report says so."""


class Guards(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Policies, on the calls of a model whichever way they are written, and on its text."""

    allowed_tools: Patterns = ("*",)
    """The tools that are offered and may be called: globs, or regular expressions between slashes. One in a namespace
    goes by `fs.read` and `fs__read`, and by `read` if no other tool has that name."""
    denied_tools: Patterns = ()
    """The tools that are not offered and may not be called, in the same way; one in a namespace goes by any of these
    names."""
    on_denied: Manner = "text"
    """What stands in the place of a call that is not allowed. For a client that reads calls out of the text, where
    `text` would carry it out, that is as `steer`."""
    denied_message: str = ""
    """What `steer` says."""
    reactors: tuple[Reactor, ...] = ()
    """Rules on single calls, in order; each sees what those before it made of the call."""
    arguments: Checking | None = None
    """A check of the arguments against the tool's JSON Schema; null: none."""
    content: tuple[Rule, ...] = ()
    """Filters on the visible text."""
    loop: Loop | None = None
    """A limit on how long an agent may go round; null: none."""
    on_failure: OnFailure = "refuse"
    """What becomes of a call on which a policy that may refuse or change it fails, and of what cannot be read where
    such a policy holds: it is refused, or passes as without the policy. A rule that only tags or steers is skipped."""

    def __post_init__(self) -> None:
        check(self.allowed_tools, "allowed_tools")
        check(self.denied_tools, "denied_tools")

    @property
    def restricts_tools(self) -> bool:
        return bool(self.denied_tools) or self.allowed_tools not in ("*", ("*",))

    @property
    def checks_calls(self) -> bool:
        """True if calls are looked at."""
        return any(True for _ in self.build_call_guards({}))

    @property
    def is_strict(self) -> bool:
        """True if nothing may leave that these policies have not seen."""
        return any(guard.on_failure == "refuse" for guard in self.build_call_guards({}))

    @property
    def literal_tool_names(self) -> list[str]:
        """Names of tools that the policies spell out, and do not match by a pattern."""
        reactors = [name for reactor in self.reactors for name in each(reactor.when.tools)]
        return [name for name in (*each(self.denied_tools), *reactors) if is_name(name)]

    def build_call_guards(
        self, tools: Mapping[str, Tool], budget: Budget | None = None, names: ToolNames | None = None
    ) -> Iterator[Guard]:
        """Make the guards that look at calls. All that these policies may refuse is asked of them."""
        how, names = self.on_failure, names or ToolNames(tools)
        if self.reactors:
            yield Reactors(self.reactors, tools, how, budget, names)
        if self.restricts_tools:
            yield self.build_access(names)
        if self.arguments:
            coerce, misfit = self.arguments.coerce, self.arguments.misfit
            yield Arguments(tools, coerce=coerce, manner=misfit, on_failure=how, budget=budget)

    def build_access(self, names: ToolNames) -> Access:
        lists, how = (self.allowed_tools, self.denied_tools), (self.on_denied, self.denied_message)
        return Access(*lists, *how, names=names, on_failure=self.on_failure)


CALL_GUARD_ORDER = (Reactors, Access, Arguments)
"""The order of guards on calls. Reactors come first, so that what they make of a call is what the others look at."""


class GuardChain:
    """Guards in their order.

    One that raises is reported, and goes on with the next event; this one goes on as it was, but for a call that the
    guard would not have let pass unseen.
    """

    def __init__(self, guards: Sequence[Guard]) -> None:
        self._guards = list(guards)
        self.reads_text = any(guard.reads_text for guard in guards)
        """True if text must go through `feed`."""

    def feed(self, event: Event) -> list[Event]:
        events = [event]
        for guard in self._guards:
            events = [out for event in events for out in self._feed(guard, event)]
        return events

    def finish(self) -> list[Event]:
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
            message = f"The call of `{event.call.name}` was not carried out, as a policy fails on it."
            return [*failure, Denied(event.raw, event.call, "steer", message)]


def _has_denial(events: Sequence[Event]) -> bool:
    return any(isinstance(event, Denied) for event in events)


def _handle_failure(guard: Guard, error: Exception, tool: str = "", *, refuses: bool = False) -> list[Event]:
    """Tell that a guard failed, and give back the text that it held."""
    held, guard.held = guard.held, ""
    reason = f"it fails on this {'call' if tool else 'text'} and {'so refuses it' if refuses else 'is skipped'}"
    failure = Intervention(
        type(guard).__name__.lower(),
        "refused" if refuses else "failed",
        tool,
        f"{reason}: {type(error).__name__}",
        str(error)[:MAX_ERROR_CHARS],
    )
    return [failure, *([Text(held)] if held else [])]


def build_chain(
    configured: Sequence[Guards],
    tools: Mapping[str, Tool],
    *,
    declared: Collection[str] = (),
    is_text: bool = False,
    budget: Budget | None = None,
) -> GuardChain:
    """Make the guards of several profiles; `is_text` if the client reads calls out of the text. All work on
    calls is done within one `budget`, also where a reply has several choices. More tools than these may be `declared`.
    """
    budget = budget or Budget()
    names = ToolNames([*tools, *declared])
    chained: list[Guard] = [ContentGuard(rule) for guards in configured for rule in guards.content]
    on_calls = [guard for guards in configured for guard in guards.build_call_guards(tools, budget, names)]
    if is_text or on_calls:
        chained.append(NameGuard(tools))
    strict = [guards for guards in configured if guards.on_failure == "refuse"]
    rules = [reactor for guards in strict for reactor in guards.reactors if reactor.then.is_enforcing]
    checks_all = any(guards.arguments and guards.arguments.misfit for guards in strict)
    if rules or checks_all:
        chained.append(Keys(rules, tools, names, checks_all=checks_all, budget=budget))
    return GuardChain([*chained, *sorted(on_calls, key=lambda guard: CALL_GUARD_ORDER.index(type(guard)))])


def list_refusable_tools(configured: Sequence[Guards], known: Collection[str]) -> list[str]:
    """Name the tools, of those `known` and those that policies spell out, whose calls may be refused."""
    spelled = [name for guards in configured for name in guards.literal_tool_names]
    on_calls = [guard for guards in configured for guard in guards.build_call_guards({}, names=ToolNames(known))]
    names = dict.fromkeys([*known, *spelled])
    return [name for name in names if any(guard.may_refuse(name) for guard in on_calls)]
