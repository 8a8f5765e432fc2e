"""The tree of what a reply may be: literal text, text up to its closer, JSON values, and how they follow one another.

It is made once, and each writer says the same in a language of its own.
"""

from __future__ import annotations

import msgspec

from vtc.dialects.syntax.parts import Lit, Part


class Chars(msgspec.Struct, frozen=True):
    """A run of characters of a class, as GBNF has it between brackets."""

    allowed: str
    least: int
    most: int


class Leaf(msgspec.Struct, frozen=True):
    """One of the rules that every grammar has: `string`, `number`, `value`, … (`gbnf.LEAVES`)."""

    name: str


class Text(msgspec.Struct, frozen=True, cache_hash=True):
    """Any text, also none, in which nothing of `stops` occurs, and that does not end in anything of `last`."""

    stops: tuple[tuple[Part, ...], ...]
    last: tuple[tuple[Part, ...], ...] = ()


class Seq(msgspec.Struct, frozen=True, cache_hash=True):
    """One after the other."""

    parts: tuple[Node, ...]


class Choice(msgspec.Struct, frozen=True, cache_hash=True):
    """One of them."""

    options: tuple[Node, ...]


class Some(msgspec.Struct, frozen=True, cache_hash=True):
    """The same again and again, at least `least` times, and at most `most` if that is not None."""

    part: Node
    between: Node
    least: int = 1
    most: int | None = None


class Member(msgspec.Struct, frozen=True, cache_hash=True):
    """One of `Each`."""

    node: Node
    required: bool


class Each(msgspec.Struct, frozen=True, cache_hash=True):
    """Each member at most once, and those that are required just once.

    The first of `free` stand in any order, and anywhere among the others, which keep theirs: every order of n members
    would take 2^n rules.
    """

    free: tuple[Member, ...]
    rest: tuple[Member, ...]
    between: Node


type Node = Lit | Chars | Leaf | Text | Seq | Choice | Some | Each

NOTHING = Seq(())


class Way(msgspec.Struct, frozen=True):
    """One way in which a section or a call begins, and what it then is."""

    trigger: str
    """Its first characters, by which it is known in free text."""
    node: Node
    """All of it, the trigger included."""


class Reply(msgspec.Struct, frozen=True):
    """What a whole reply may be."""

    calls: Node
    """Calls, as the dialect writes them."""
    ways: tuple[Way, ...]
    """All ways in which calls may begin in free text; none where the reply must be calls and nothing else."""
    thoughts: tuple[tuple[str, str], ...] = ()
    """The tags around reasoning, which may stand before."""
    begun: tuple[str, ...] = ()
    """The tags that end a reasoning that the prompt may have begun."""
    several: bool = True
    """More than one call, or one section after another."""


class Inexpressible(ValueError):
    """No grammar says this; the text says why, for people."""


def seq(*parts: Node) -> Node:
    """Join parts, and literals that stand side by side; one alone is itself."""
    found: list[Node] = []
    for part in parts:
        for one in part.parts if isinstance(part, Seq) else (part,):
            if isinstance(one, Lit) and found and isinstance(last := found[-1], Lit):
                found[-1] = Lit(last.text + one.text)
            elif not (isinstance(one, Lit) and not one.text):
                found.append(one)
    return found[0] if len(found) == 1 else Seq(tuple(found))


def choice(*options: Node) -> Node:
    """Make a choice of what is not the same; one alone is itself."""
    unlike = tuple(dict.fromkeys(options))
    return unlike[0] if len(unlike) == 1 else Choice(unlike)


def maybe(node: Node) -> Node:
    return choice(node, NOTHING)


def each(members: tuple[Member, ...], between: Node, free: int) -> Node:
    """Put members in any order, as far as `free` allows it: the required ones first, as models leave those least."""
    order = sorted(range(len(members)), key=lambda place: (not members[place].required, place))
    chosen = {*order[:free]}
    return Each(
        tuple(one for place, one in enumerate(members) if place in chosen),
        tuple(one for place, one in enumerate(members) if place not in chosen),
        between,
    )
