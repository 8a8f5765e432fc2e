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


MOST = 192 << 10
"""Characters of what no grammar leaves out, of all tools of a request together."""
MOST_MADE = 1 << 14
"""Schemas that are read for it."""


_PER_MEMBER = 20
"""Characters of the rule of a member, and of one that names it."""


class Nodes:
    """The nodes that are made for a reply: each is there once, and they are no more than a grammar may hold.

    What is compared or written is compared and written once then, however often schemas refer to it.
    """

    def __init__(self, most: int = MOST) -> None:
        """`most` characters may be written."""
        self._nodes: dict[Node, Node] = {}
        self._most = most
        self.written = self.made = 0

    def make(self) -> None:
        """Count a schema that is read. Raises `Inexpressible` if they are too many."""
        self.made += 1
        if self.made > MOST_MADE:
            raise Inexpressible(f"the grammar would be of more than {MOST_MADE} schemas")

    def write(self, characters: int) -> None:
        """Count characters. Raises `Inexpressible` if they are too many."""
        self.written += characters
        if self.written > self._most:
            raise Inexpressible(f"the grammar would be longer than {self._most >> 10} KB")

    def once(self, node: Node) -> Node:
        """Get the node that is the same as this one. Raises `Inexpressible` as `write` does."""
        if node not in self._nodes:
            self._nodes[node] = node
            self.write(_characters(node))
        return self._nodes[node]


def _characters(node: Node, *, ruled: bool = False) -> int:
    """Count what a node takes at the least, without others in it which have rules of their own."""
    match node:
        case Lit(text):
            return len(text) + 2
        case Leaf(name):
            return len(name)
        case Seq(parts):
            return sum(_characters(one, ruled=ruled) for one in parts)
        case Choice(options) if not ruled:
            return sum(2 + _characters(one, ruled=True) for one in options)
        case Each(free, rest) if not ruled:
            return sum(_PER_MEMBER + _characters(one.node, ruled=True) for one in (*free, *rest))
    return 0


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
