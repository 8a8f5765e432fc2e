"""The calls that the JSON after one head says: whole calls, or the arguments of the tool that the head names."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from vtc.dialects.arguments import envelope, fitting
from vtc.dialects.reading.named_tool import NamedTool
from vtc.dialects.repair import Repair
from vtc.dialects.syntax import tool_names
from vtc.dialects.syntax.description import Envelope
from vtc.dialects.syntax.forms import CallSyntax


def read_bodies(syntax: CallSyntax, named: NamedTool, bodies: Sequence[str], *, lenient: bool) -> list[envelope.Read]:
    """Read the JSON of a call whose head named a tool, if it does. Raises `envelope.NotACall`."""
    if syntax.body == "json":
        keys, bare = syntax.dialect.json, syntax.dialect.names == "declared"
        return [envelope.read(body, keys, needs_arguments=bare, offered=named.offered) for body in bodies]
    if len(bodies) > 1:
        raise envelope.NotACall("its arguments are several objects")
    if named.tool is None and tool_names.is_bare_id(named.written):
        with contextlib.suppress(envelope.NotACall):  # Kimi: an id stands for the name, which the arguments hold
            return [envelope.read(body, Envelope(), needs_arguments=True, offered=named.offered) for body in bodies]
        if lenient and (found := _by_arguments(named, bodies[0])):
            return [found]
    return [envelope.read_arguments(named.written, body, named.tool) for body in bodies]


def _by_arguments(named: NamedTool, body: str) -> envelope.Read | None:
    """Read a call with a bare id for a name, if its arguments fit only one of the offered tools."""
    read = envelope.read_arguments(named.written, body, None)
    fits = [tool for tool in named.tools.values() if fitting.declares(tool, read.arguments)]
    if not read.arguments or len({tool.name for tool in fits}) != 1:
        return None
    return read._replace(name=fits[0].name, tool=fits[0], repairs=(*read.repairs, Repair.TOOL_BY_ARGUMENTS))
