"""Reactors: rules that a user writes about single calls, each with conditions and actions.

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

import msgspec
import regex
from msgspec.structs import replace

from vtc import json_text
from vtc.events import Call, Denied, Event, Intervention, OnFailure, Rewritten, Tool, ToolCall
from vtc.guards.arguments import Checker
from vtc.guards.guard import Guard, ToolNames, describe_failure
from vtc.guards.patterns import Budget, Expression, Patterns, check_patterns, compile_expression, prefix_errors

MAX_ERROR_CHARS = 200
"""Maximum length of a reported error message."""

type NonEmptyText = Annotated[str, msgspec.Meta(min_length=1)]
type ArgumentPath = Annotated[str, msgspec.Meta(extra_json_schema={"format": "JMESPath"})]


class Test(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conditions on one argument; all conditions that are given must hold."""

    matches: Expression | None = None
    """A regular expression for a part of the argument: of a text, of any text in a list, or of the JSON of another
    value."""
    equals: Any = msgspec.UNSET
    """The value that the argument must equal."""
    exists: bool | None = None
    """True if the argument must exist, False if it must not."""

    def holds(self, value: Any, budget: Budget) -> bool:
        """Return True if the value at the path, None if there is none, fulfills all conditions.

        Raises TakesTooLongError.
        """
        if self.exists is not None and self.exists != (value is not None):
            return False
        if self.equals is not msgspec.UNSET and value != self.equals:
            return False
        return self.matches is None or any(budget.search(self.matches, text) for text in _list_texts(value))


class When(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Conditions on a call; all conditions that are given must hold."""

    tools: Patterns = ("*",)
    """The tools whose calls match: globs, or regular expressions between slashes. A tool in a namespace matches as
    `fs.read`, `fs__read` and `read`; under `unless`, as the last only if no other tool has that name."""
    arguments: dict[ArgumentPath, Expression | Test] = {}
    """Regular expressions or tests by JMESPath."""
    fits: bool | None = None
    """True if the arguments must fit the tool's JSON Schema, False if they must not."""

    def __post_init__(self) -> None:
        check_patterns(self.tools, "tools")
        for path, test in self.arguments.items():
            with prefix_errors("arguments"):
                compile_path(path)
            with prefix_errors(f"arguments.{path}"):
                compile_expression(test if isinstance(test, str) else test.matches or "")

    def holds(self, arguments: Any, budget: Budget, checker: Callable[[], Checker | None]) -> bool:
        """Return True if all conditions except the one on the tool hold.

        Raises TakesTooLongError, and `Uncheckable` if `fits` is set and the tool's schema is invalid.
        """
        for path, given in self.arguments.items():
            test = Test(matches=given) if isinstance(given, str) else given
            budget.spend(_count_steps(arguments))
            if not test.holds(_find_value(path, arguments), budget):
                return False
        schema_checker = checker() if self.fits is not None else None
        return schema_checker is None or self.fits == (not schema_checker.find_mismatch(arguments).reason)


class Replacement(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A replacement of parts of a text argument, with `\\1` and `\\g<name>` for groups of the match."""

    argument: NonEmptyText
    """The argument's name."""
    pattern: Annotated[Expression, msgspec.Meta(min_length=1)]
    """A regular expression."""
    replacement: str = ""
    """Replacement of each match."""

    def __post_init__(self) -> None:
        with prefix_errors("pattern"):
            pattern = compile_expression(self.pattern)
        try:
            regex.compile(f"(?:{self.pattern})|").sub(self.replacement, "")
        except (regex.error, IndexError) as error:
            raise ValueError(f"replacement: {self.replacement!r} does not fit {pattern.pattern!r}: {error}") from None


class Then(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Actions on the call, in this order."""

    rename_tool: str = ""
    """The tool's new name."""
    rename_arguments: dict[str, str] = {}
    """New names of arguments by their old names; an existing argument is not overwritten."""
    set_arguments: dict[str, Any] = {}
    """Values of arguments to set; existing values are overwritten."""
    remove_arguments: tuple[str, ...] = ()
    """Names of arguments to remove."""
    replace: tuple[Replacement, ...] = ()
    """Replacements inside text arguments."""
    tag: str = ""
    """A word for the report."""
    steer: str = ""
    """A line of text that is added before the call."""
    refuse: str = ""
    """The message of the denial; empty if the call is not denied."""
    refuse_as: Literal["steer", "text", "drop"] = "steer"
    """Replacement of a denied call: the message, the call's text, or nothing."""

    @property
    def is_enforcing(self) -> bool:
        """True if the call is denied or changed, and not only reported or commented on."""
        return self != Then(tag=self.tag, steer=self.steer, refuse_as=self.refuse_as)


class Reactor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One rule on calls."""

    name: NonEmptyText
    """The name of the rule in reports."""
    when: When = When()
    """Conditions under which the rule applies to a call."""
    unless: When | None = None
    """Exceptions from these conditions."""
    then: Then
    """Actions on the call."""

    def __post_init__(self) -> None:
        if self.then == Then():
            raise ValueError(f"reactor {self.name!r}: `then` is empty; add an action")


def add_renamed_tools(reactors: Sequence[Reactor], tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """Add the names of tools and arguments that reactors rename to the declared tools.

    Without them, the reader would not recognize a call or an argument under its old name.
    """
    targets = {name: name for name in tools}
    for reactor in reactors:
        patterns = reactor.when.tools
        for pattern in (patterns,) if isinstance(patterns, str) else patterns:
            if reactor.then.rename_tool in tools and pattern not in targets and re.fullmatch(r"[\w.:-]+", pattern):
                targets[pattern] = reactor.then.rename_tool
    names = ToolNames(tools)
    return {alias: _declare_renamed(tools[name], alias, reactors, names) for alias, name in targets.items()}


def _declare_renamed(tool: Tool, alias: str, reactors: Sequence[Reactor], names: ToolNames) -> Tool:
    """Declare a tool under the name `alias`, with the old names of the arguments that reactors rename."""
    declared = tool.parameters.get("properties")
    old: dict[str, Any] = {}
    for reactor in reversed(reactors):  # because a rule may rename an argument that an earlier rule renamed
        if isinstance(declared, Mapping) and any(names.match(reactor.when.tools, name) for name in (alias, tool.name)):
            known = {**old, **declared}
            renamed = reactor.then.rename_arguments.items()
            old |= {old_name: known[new] for old_name, new in renamed if new in known and old_name not in declared}
    if alias == tool.name and not old:
        return tool
    parameters = {**tool.parameters, "properties": {**old, **declared}} if old and declared else tool.parameters
    return replace(tool, name=alias, parameters=parameters)


class Reactors(Guard):
    """The guard that applies the rules in order, each to the call as changed by the rules before it."""

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
        """Deny a call on which a rule fails, unless the rule does not enforce anything or `on_failure` is `pass`."""
        policy, name, then = f"reactors.{reactor.name}", event.call.name, reactor.then
        refuses = then.is_enforcing and self.on_failure == "refuse"
        reason = f"{describe_failure('call', refuses=refuses)}: {type(error).__name__}"
        failure = Intervention(policy, "refused" if refuses else "failed", name, reason, str(error)[:MAX_ERROR_CHARS])
        if not refuses:
            return [failure], event
        message = (
            then.refuse or f"The call of `{name}` was not carried out, because the rule {reactor.name} fails on it."
        )
        return [failure], Denied(event.raw, event.call, then.refuse_as, message)

    def _applies_to(self, reactor: Reactor, call: ToolCall, arguments: Any, fault: str) -> bool:
        """Return True if a rule applies to a call.

        `fault` is the reason why the arguments cannot be parsed; an enforcing rule then applies, too.
        """
        name, unless = call.name, reactor.unless
        if not self._names.match(reactor.when.tools, name):
            return False
        if fault:
            # The input of a custom tool is text, so there are no arguments to change.
            changes = reactor.then.is_enforcing and self.on_failure == "refuse" and not call.is_custom
            return bool(reactor.then.refuse) or changes
        checker = partial(self._get_checker, name)
        if not reactor.when.holds(arguments, self._budget, checker):
            return False
        if unless is None or not self._names.match_alone(unless.tools, name):
            return True
        return not unless.holds(arguments, self._budget, checker)

    def _get_checker(self, name: str) -> Checker | None:
        """Return the checker of a tool's schema; None for an unknown tool."""
        if name in self._tools and name not in self._checkers:
            self._checkers[name] = Checker(self._tools[name], self._budget)
        return self._checkers.get(name)


def _apply_rule(reactor: Reactor, event: Call, fault: str, budget: Budget) -> tuple[list[Event], Call | Denied]:
    """Apply a rule to a call; return the events to emit before the call, and the call. Raises the rule's errors."""
    then, policy, name = reactor.then, f"reactors.{reactor.name}", event.call.name
    out: list[Event] = []
    if fault and not then.refuse:
        raise ValueError(fault)
    if not fault:
        arguments = json_text.parse_twice(event.call.arguments, json_text.parse_float_or_decimal)
        if changes := list(_apply_changes(then, name, arguments, budget)):
            out.append(Intervention(policy, "changed", name, ", ".join(changes)))
            call = replace(event.call, name=then.rename_tool or name, arguments=json_text.serialize_json(arguments))
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
    """Parse arguments, even if they are encoded twice; return them and the parse error, empty if there is none."""
    try:
        value = json_text.parse_twice(text)
    except ValueError as error:
        return None, f"its arguments cannot be read ({error})"
    return value, "" if isinstance(value, dict) else "its arguments are not a JSON object"


def _apply_changes(then: Then, name: str, arguments: dict[str, Any], budget: Budget) -> Iterator[str]:
    """Apply the changes of a rule to the arguments; yield a description of each."""
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
    """Find the value at a JMESPath; None if there is none. Raises `JMESPathError` if a function rejects its type."""
    from jmespath.exceptions import JMESPathTypeError

    try:
        return compile_path(path)(arguments)
    except JMESPathTypeError as error:
        if error.actual_type == "null":  # a missing argument, for example in a call of another tool
            return None
        raise


@lru_cache(maxsize=1024)
def compile_path(text: str) -> Callable[[Any], Any]:
    """Compile a JMESPath; raise ValueError if it is invalid."""
    import jmespath  # when used: `vtc.library` does not need it

    try:
        return jmespath.compile(text).search
    except jmespath.exceptions.JMESPathError as error:
        reason = str(error).splitlines()[0].rstrip(":")
        raise ValueError(f"{text!r} is not a JMESPath: {reason}") from None


VALUES_PER_STEP = 4
"""Number of values visited by a JMESPath that cost one step."""


def _count_steps(value: Any) -> int:
    """Count the steps that a JMESPath on the arguments costs, because it may visit all values."""
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
