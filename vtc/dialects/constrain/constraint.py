"""One constraint of a request, in the form that its server takes."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

from vtc.dialects.constrain import gbnf, json_reply, structural_tag
from vtc.dialects.constrain.calls import FREEDOM, Demand, quoting, reply
from vtc.dialects.constrain.tree import Inexpressible
from vtc.dialects.syntax.description import Description
from vtc.events import Tool

type Kind = Literal["structural_tag", "gbnf", "json_schema"]


def written(kind: Kind, dialect: Description, tools: Sequence[Tool], demand: Demand) -> Any:
    """Write the constraint of a reply: a format of structural tags, the text of a grammar, or a schema.

    Raises `Inexpressible`, which says for people why there is none.
    """
    if kind == "json_schema":
        if not demand.demanded:
            raise Inexpressible("a JSON Schema is of the whole reply, so a call must be demanded")
        if dialect.unconstrained:
            raise Inexpressible(f"dialect {dialect.name}: {dialect.unconstrained}")
        return json_reply.write(dialect, tools)
    write = structural_tag.write if kind == "structural_tag" else gbnf.write
    freest, *freedoms, least = FREEDOM
    tree = reply(dialect, tools, demand, freest)
    with suppress(Inexpressible):
        return write(tree)
    shortest = write(reply(dialect, tools, demand, least))  # where that is too long, all are
    for freedom in freedoms:
        with suppress(Inexpressible):
            return write(reply(dialect, tools, demand, freedom))
    return shortest


__all__ = ["Demand", "Inexpressible", "Kind", "quoting", "written"]
