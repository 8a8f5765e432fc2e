"""The tree as a structural tag: how vLLM, SGLang and TensorRT-LLM are told to decode, by xgrammar.

Free text with calls in it is `triggered_tags`: at each trigger one of the tags must follow that begins with it. What is
in a tag is the same GBNF that other servers are given, so that both are one language, with the same bounds. Tags share
nothing: where that would be too long, one grammar says all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from vtc.dialects.constrain import gbnf
from vtc.dialects.constrain.tree import NOTHING, Choice, Node, Reply, Seq, Some, choice, seq
from vtc.dialects.syntax.parts import Lit

MOST = 192 << 10
"""Characters of the contents of all tags."""

type Format = Mapping[str, Any]


def write(reply: Reply) -> Format:
    """Write the format of a reply. Raises `Inexpressible` if it is too long."""
    if not reply.ways:
        return {"type": "grammar", "grammar": gbnf.write(reply)}
    contents: list[str] = []
    for way in reply.ways:
        contents.append(gbnf.text_of(behind(way.node, way.trigger)))
        if sum(map(len, contents)) > MOST:
            return {"type": "grammar", "grammar": gbnf.write(reply)}
    tags = [
        {
            "type": "tag",
            "begin": way.trigger,
            "content": {"type": "grammar", "grammar": content},
            "end": "",
        }
        for way, content in zip(reply.ways, contents, strict=True)
    ]
    said = {
        "type": "triggered_tags",
        "triggers": [way.trigger for way in reply.ways],
        "tags": tags,
        "at_least_one": False,
        "stop_after_first": not reply.several,
    }
    thoughts = [*(_tag(open_, close) for open_, close in reply.thoughts), *(_tag("", close) for close in reply.begun)]
    if not thoughts:
        return said
    return {"type": "or", "elements": [*(_sequence([one, said]) for one in thoughts), said]}


def _tag(begin: str, end: str) -> Format:
    return {"type": "tag", "begin": begin, "content": {"type": "any_text"}, "end": end}


def _sequence(elements: Sequence[Format]) -> Format:
    return {"type": "sequence", "elements": elements}


def behind(node: Node, text: str) -> Node:
    """Leave out the text with which a tree begins."""
    match node:
        case Lit(whole):
            assert whole.startswith(text)
            return Lit(whole[len(text) :]) if len(whole) > len(text) else NOTHING
        case Seq((first, *rest)):
            return seq(behind(first, text), *rest)
        case Choice(options):
            return choice(*(behind(one, text) for one in options))
        case Some(part, between, _, most):
            more = Some(seq(between, part), NOTHING, 0)
            return behind(part, text) if most == 1 else seq(behind(part, text), more)
    raise AssertionError(f"{node} does not begin with {text!r}")
