"""Rules of a user's own: what a call must look like, and what is then done to it.

    - name: no-recursive-delete
      when: {tools: [bash, run_*], arguments: {command: '\\brm\\s+-\\w*r'}}
      then: {refuse: "Move files to ./trash instead."}

Conditions name arguments by JMESPath (jmespath.org): `command`, `edits[*].path`, `"file-path"`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from typing import Annotated, Any, Literal

import jmespath
import msgspec
import regex
from jmespath.exceptions import JMESPathError, JMESPathTypeError
from msgspec.structs import replace

from vtc import json_text
from vtc.events import Call, Denied, Event, Intervention, OnFailure, Rewritten, Tool, ToolCall
from vtc.guards.arguments import Checker
from vtc.guards.guard import Guard, ToolNames
from vtc.guards.patterns import Budget, Expression, Patterns, check, expression, naming

MAX_ERROR_CHARS = 200
"""Characters that are told of what a rule fails with."""

type NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
type ArgumentPath = Annotated[str, msgspec.Meta(extra_json_schema={"format": "JMESPath"})]


class Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What one argument must be; all that is given must hold."""

    matches: Expression | None = None
    """A regular expression for a part of it: of a text, of any text in a list, of the JSON of anything else."""
    equals: Any = msgspec.UNSET
    """The value that it must equal."""
    exists: bool | None = None
    """Whether it must be there."""

    def holds(self, value: Any, budget: Budget) -> bool:
        """For the value at a path; None stands for nothing there. Raises TakesTooLongError."""
        if self.exists is not None and self.exists != (value is not None):
            return False
        if self.equals is not msgspec.UNSET and value != self.equals:
            return False
        return self.matches is None or any(budget.search(self.matches, text) for text in _list_texts(value))


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Which calls a reactor is for: all that is given must hold."""

    tools: Patterns = ("*",)
    """The tools whose calls it is for: globs, or regular expressions between slashes. One in a namespace goes by any of
    `fs.read`, `fs__read` and `read`; under `unless` by the last only if no other tool has that name."""
    arguments: dict[ArgumentPath, Expression | Test] = {}
    """By JMESPath: a regular expression, or a test."""
    fits: bool | None = None
    """Whether the arguments must fit the tool's JSON Schema, or must not."""

    def __post_init__(self) -> None:
        check(self.tools, "tools")
        for path, test in self.arguments.items():
            with naming("arguments"):
                compile_path(path)
            with naming(f"arguments.{path}"):
                expression(test if isinstance(test, str) else test.matches or "")

    def holds(self, arguments: Any, budget: Budget, checker: Callable[[], Checker | None]) -> bool:
        """Tell if all but the tool is as it must be.

        Raises TakesTooLongError, and `Uncheckable` where `fits` is asked of a tool whose schema is none.
        """
        for path, given in self.arguments.items():
            test = Test(matches=given) if isinstance(given, str) else given
            budget.spend(_count_steps(arguments))
            if not test.holds(_find_value(path, arguments), budget):
                return False
        against = checker() if self.fits is not None else None
        return against is None or self.fits == (not against.find_mismatch(arguments).reason)


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A change inside of a text argument: `replacement` for each match, with `\\1` and `\\g<name>` for its groups."""

    argument: NonEmptyText
    """The argument's name."""
    pattern: Annotated[Expression, msgspec.Meta(min_length=1)]
    """A regular expression."""
    replacement: str = ""
    """What stands in the place of each match."""

    def __post_init__(self) -> None:
        with naming("pattern"):
            pattern = expression(self.pattern)
        try:
            regex.compile(f"(?:{self.pattern})|").sub(self.replacement, "")
        except (regex.error, IndexError) as error:
            raise ValueError(f"replacement: {self.replacement!r} does not fit {pattern.pattern!r}: {error}") from None


class Then(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is done to the call, in this order."""

    rename_tool: str = ""
    """The tool's new name."""
    rename_arguments: dict[str, str] = {}
    """Old name: new name; an argument that is there already is not overwritten."""
    set_arguments: dict[str, Any] = {}
    """Arguments and their values, in the place of those that are there."""
    remove_arguments: tuple[str, ...] = ()
    """Names of arguments."""
    replace: tuple[Replacement, ...] = ()
    """Changes inside of arguments that are text."""
    tag: str = ""
    """A word for the report."""
    steer: str = ""
    """A line of text that is added before the call."""
    refuse: str = ""
    """A message that stands in the place of the call."""
    refuse_as: Literal["steer", "text", "drop"] = "steer"
    """What stands in the place of a refused call: the message, the call's text, or nothing."""

    @property
    def is_enforcing(self) -> bool:
        """True if a call must not leave as it is: it is refused or changed, and not just spoken of."""
        return self != Then(tag=self.tag, steer=self.steer, refuse_as=self.refuse_as)


class Reactor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule."""

    name: NonEmptyText
    """What reports call it."""
    when: When = When()
    """The calls that it is for."""
    unless: When | None = None
    """Calls that it is not for."""
    then: Then
    """What is done to them."""

    def __post_init__(self) -> None:
        if self.then == Then():
            raise ValueError(f"reactor {self.name!r}: `then` is empty; write what is to be done")


def add_renamed_tools(reactors: Sequence[Reactor], tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The tools as a model may call them: also by the names, and with the arguments, that reactors rename.

    What nobody offers and nothing declares would not be read as a call, or as an argument of one.
    """
    meant = {name: name for name in tools}
    for reactor in reactors:
        patterns = reactor.when.tools
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            if reactor.then.rename_tool in tools and pattern not in meant and re.fullmatch(r"[\w.:-]+", pattern):
                meant[pattern] = reactor.then.rename_tool
    names = ToolNames(tools)
    return {written: _declare_renamed(tools[name], written, reactors, names) for written, name in meant.items()}


def _declare_renamed(tool: Tool, written: str, reactors: Sequence[Reactor], names: ToolNames) -> Tool:
    """A tool as it is called by the name `written`, with the arguments that reactors rename to its own."""
    declared = tool.parameters.get("properties")
    old: dict[str, Any] = {}
    for reactor in reversed(reactors):  # one may rename what another makes of an argument
        if isinstance(declared, Mapping) and any(
            names.match(reactor.when.tools, name) for name in (written, tool.name)
        ):
            known = {**old, **declared}
            renamed = reactor.then.rename_arguments.items()
            old |= {old_name: known[new] for old_name, new in renamed if new in known and old_name not in declared}
    if written == tool.name and not old:
        return tool
    parameters = {**tool.parameters, "properties": {**old, **declared}} if old and declared else tool.parameters
    return replace(tool, name=written, parameters=parameters)


class Reactors(Guard):
    """The rules in their order, each on what those before it made of a call."""

    def __init__(
        self,
        reactors: Sequence[Reactor],
        tools: Mapping[str, Tool],
        on_failure: OnFailure = "refuse",
        budget: Budget | None = None,
        names: ToolNames | None = None,
    ) -> None:
        rules = [reactor for reactor in reactors if reactor.then.is_enforcing]
        names = self._names = names or ToolNames(tools)
        refuses = (lambda name: any(names.match(reactor.when.tools, name) for reactor in rules)) if rules else None
        super().__init__(refuses=refuses, on_failure=on_failure)
        self._budget = budget or Budget()
        self._checkers: dict[str, Checker] = {}
        self._reactors = reactors
        self._tools = tools

    def feed(self, event: Event) -> list[Event]:
        if not isinstance(event, Call):
            return [event]
        arguments, fault = _parse_arguments(event.call.arguments)
        out: list[Event] = []
        for reactor in self._reactors:
            try:
                if not self._applies_to(reactor, event.call, arguments, fault):
                    continue
                notes, outcome = _apply_rule(reactor, event, fault, self._budget)
                if isinstance(outcome, Call) and outcome.call is not event.call:
                    arguments, fault = _parse_arguments(outcome.call.arguments)
            except Exception as error:
                notes, outcome = self._refuse_failed(reactor, event, error)
            out += notes
            if isinstance(outcome, Denied):
                return [*out, outcome]
            event = outcome
        return [*out, event]

    def _refuse_failed(self, reactor: Reactor, event: Call, error: Exception) -> tuple[list[Event], Call | Denied]:
        """Refuse a call on which a rule fails, unless the rule would let it leave as it is."""
        policy, name, then = f"reactors.{reactor.name}", event.call.name, reactor.then
        refuses = then.is_enforcing and self.on_failure == "refuse"
        reason = f"it fails on this call and {'so refuses it' if refuses else 'is skipped'}: {type(error).__name__}"
        failure = Intervention(policy, "refused" if refuses else "failed", name, reason, str(error)[:MAX_ERROR_CHARS])
        if not refuses:
            return [failure], event
        message = then.refuse or f"The call of `{name}` was not carried out, as the rule {reactor.name} fails on it."
        return [failure], Denied(event.raw, event.call, then.refuse_as, message)

    def _applies_to(self, reactor: Reactor, call: ToolCall, arguments: Any, fault: str) -> bool:
        """True if a rule is for a call; one that must not let it leave as it is is for what cannot be read, too."""
        name, unless = call.name, reactor.unless
        if not self._names.match(reactor.when.tools, name):
            return False
        if fault:
            # The input of a custom tool is text: there are no arguments to change.
            changes = reactor.then.is_enforcing and self.on_failure == "refuse" and not call.is_custom
            return bool(reactor.then.refuse) or changes
        checker = partial(self._get_checker, name)
        if not reactor.when.holds(arguments, self._budget, checker):
            return False
        if unless is None or not self._names.match_alone(unless.tools, name):
            return True
        return not unless.holds(arguments, self._budget, checker)

    def _get_checker(self, name: str) -> Checker | None:
        """Make what checks arguments against a tool's schema; None for a tool that is not known."""
        if name in self._tools and name not in self._checkers:
            self._checkers[name] = Checker(self._tools[name], self._budget)
        return self._checkers.get(name)


def _apply_rule(reactor: Reactor, event: Call, fault: str, budget: Budget) -> tuple[list[Event], Call | Denied]:
    """Apply a rule to a call that it is for; return what there is to tell, and the call. Raises what it fails with."""
    then, policy, name = reactor.then, f"reactors.{reactor.name}", event.call.name
    out: list[Event] = []
    if fault and not then.refuse:
        raise ValueError(fault)
    if not fault:
        arguments = json_text.parse_twice(event.call.arguments, json_text.parse_float_or_decimal)
        if changes := list(_apply_changes(then, name, arguments, budget)):
            out.append(Intervention(policy, "changed", name, ", ".join(changes)))
            call = replace(event.call, name=then.rename_tool or name, arguments=json_text.serialize(arguments))
            event = replace(event, call=call, changed=True)
    if then.tag:
        out.append(Intervention(policy, "tagged", name, then.tag))
    if then.steer:
        out += [Intervention(policy, "steered", name, then.steer), Rewritten("", f"{then.steer}\n\n")]
    if not then.refuse:
        return out, event
    out.append(Intervention(policy, "refused", name, f"{fault}: {then.refuse}" if fault else then.refuse))
    return out, Denied(event.raw, event.call, then.refuse_as, then.refuse)


def _parse_arguments(text: str) -> tuple[Any, str]:
    """Read arguments, also if they are encoded twice; return them, and why they cannot be read, empty if they can."""
    try:
        value = json_text.parse_twice(text)
    except ValueError as error:
        return None, f"its arguments cannot be read ({error})"
    return value, "" if isinstance(value, dict) else "its arguments are no JSON object"


def _apply_changes(then: Then, name: str, arguments: dict[str, Any], budget: Budget) -> Iterator[str]:
    """Change the arguments; say what was done."""
    if then.rename_tool and then.rename_tool != name:
        yield f"renamed to {then.rename_tool}"
    for old, new in then.rename_arguments.items():
        if old in arguments and new not in arguments:
            items = [(new if key == old else key, value) for key, value in arguments.items()]
            arguments.clear()
            arguments.update(items)
            yield f"argument {old} renamed to {new}"
    for key, value in then.set_arguments.items():
        if key not in arguments or arguments[key] != value:
            arguments[key] = value
            yield f"argument {key} set"
    for key in then.remove_arguments:
        if key in arguments:
            del arguments[key]
            yield f"argument {key} removed"
    for rewrite in then.replace:
        text = arguments.get(rewrite.argument)
        if not isinstance(text, str):
            continue
        new = budget.run(regex.compile(rewrite.pattern).sub, rewrite.replacement, text)
        if new != text:
            arguments[rewrite.argument] = new
            yield f"argument {rewrite.argument} rewritten"


def _find_value(path: str, arguments: Any) -> Any:
    """Find the value at a JMESPath; None if nothing is there. Raises `JMESPathError` if a function cannot take it."""
    try:
        return compile_path(path)(arguments)
    except JMESPathTypeError as error:
        if error.actual_type == "null":  # an argument that is not given, as in a call of another tool
            return None
        raise


@lru_cache(maxsize=1024)
def compile_path(text: str) -> Callable[[Any], Any]:
    """Compile a JMESPath; raises ValueError."""
    try:
        return jmespath.compile(text).search
    except JMESPathError as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise ValueError(f"{text!r} is no JMESPath: {reason}") from None


VALUES_PER_STEP = 4
"""Values that an expression for a path looks at in a step."""


def _count_steps(value: Any) -> int:
    """Count the steps in which a path is looked for among arguments: it may lead to all values."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return len(inner) // VALUES_PER_STEP + sum(map(_count_steps, inner))


def _list_texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)
    elif value is not None:
        yield json.dumps(value, ensure_ascii=False)
