"""The tree of possible replies: literal text, text up to its closer, JSON values, and sequences of these.

The tree does not depend on a server; each writer renders it in a grammar language (`gbnf`, structural tags).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.dialects.syntax.pattern import AnyOf, Group, Lit, Maybe, OneOf, Part, Space
from vtc.dialects.syntax.pattern import Chars as PatternChars


class CharRun(msgspec.Struct, frozen=True):
    """A run of characters of a class, in the syntax of GBNF's brackets."""

    allowed: str
    least: int
    most: int


class Leaf(msgspec.Struct, frozen=True):
    """A reference to a predefined rule: `string`, `number`, `value`, … (`gbnf.LEAVES`)."""

    name: str


class FreeText(msgspec.Struct, frozen=True, cache_hash=True):
    """Any text, possibly empty, that contains none of `stops` and does not end in any of `last`."""

    stops: tuple[tuple[Part, ...], ...]
    banned_ends: tuple[tuple[Part, ...], ...] = ()


class Seq(msgspec.Struct, frozen=True, cache_hash=True):
    """A sequence of parts."""

    parts: tuple[Node, ...]


class Alternatives(msgspec.Struct, frozen=True, cache_hash=True):
    """A choice between options."""

    options: tuple[Node, ...]


class Repeat(msgspec.Struct, frozen=True, cache_hash=True):
    """A repetition, at least `least` times, and at most `most` times unless that is None."""

    part: Node
    between: Node
    least: int = 1
    most: int | None = None


class EachMember(msgspec.Struct, frozen=True, cache_hash=True):
    """One member of `Each`."""

    node: Node
    required: bool


class Each(msgspec.Struct, frozen=True, cache_hash=True):
    """The members of an object: each at most once, and the required ones exactly once.

    The members of `free` may come in any order, and anywhere among those of `rest`, which keep their order. `free` is
    short, because any order of n members takes 2^n rules.
    """

    free: tuple[EachMember, ...]
    rest: tuple[EachMember, ...]
    between: Node


type Node = Lit | CharRun | Leaf | FreeText | Seq | Alternatives | Repeat | Each

EMPTY_NODE = Seq(())


class CallForm(msgspec.Struct, frozen=True):
    """A layout of a section or a call in free text, with its grammar."""

    trigger: str
    """The first characters, which identify it in free text."""
    node: Node
    """The whole form, including the trigger."""


class ReplyGrammar(msgspec.Struct, frozen=True):
    """The grammar of a whole reply."""

    calls: Node
    """Calls in the dialect's format."""
    call_forms: tuple[CallForm, ...]
    """All layouts of calls in free text; none if the reply must consist of calls."""
    reasoning_tags: tuple[tuple[str, str], ...] = ()
    """The tags around reasoning that may come first."""
    reasoning_closers: tuple[str, ...] = ()
    """The closing tags of reasoning that the prompt may have opened."""
    allows_multiple: bool = True
    """True if the reply may contain more than one call or section."""


class Inexpressible(ValueError):
    """No grammar can express this; the message gives the reason for people."""


MAX_TREE_LENGTH = 192 << 10
"""Maximum length of the text that every grammar must contain, for all tools of a request, in characters."""
MAX_SCHEMAS = 1 << 14
"""Maximum number of schemas that are read for a grammar."""


_PER_MEMBER = 20
"""Length of a member's rule and of a reference to it, in characters."""


class Nodes:
    """The nodes of one reply: equal nodes are shared, and their number and size are limited.

    Each node is therefore compared and rendered once, no matter how often schemas refer to it.
    """

    def __init__(self, most: int = MAX_TREE_LENGTH) -> None:
        """`most` is the maximum length of the rendered text."""
        self._nodes: dict[Node, Node] = {}
        self._most = most
        self.character_count = self.schema_count = 0

    def count_schema(self) -> None:
        """Count a schema that is read. Raises `Inexpressible` if there are too many."""
        self.schema_count += 1
        if self.schema_count > MAX_SCHEMAS:
            raise Inexpressible(f"the grammar would cover more than {MAX_SCHEMAS} schemas")

    def count_characters(self, characters: int) -> None:
        """Count characters. Raises `Inexpressible` if there are too many."""
        self.character_count += characters
        if self.character_count > self._most:
            raise Inexpressible(f"the grammar would be longer than {self._most >> 10} KB")

    def intern(self, node: Node) -> Node:
        """Return the shared node that equals this one. Raises `Inexpressible` if there are too many characters."""
        if node not in self._nodes:
            self._nodes[node] = node
            self.count_characters(_count_characters(node))
        return self._nodes[node]


def _count_characters(node: Node, *, is_inner: bool = False) -> int:
    """Return the minimum length of a rendered node, without inner nodes that have separate rules."""
    match node:
        case Lit(text):
            return len(text) + 2
        case Leaf(name):
            return len(name)
        case Seq(parts):
            return sum(_count_characters(part, is_inner=is_inner) for part in parts)
        case Alternatives(options) if not is_inner:
            return sum(2 + _count_characters(option, is_inner=True) for option in options)
        case Each(free, rest) if not is_inner:
            return sum(_PER_MEMBER + _count_characters(member.node, is_inner=True) for member in (*free, *rest))
    return 0


def join_nodes(*parts: Node) -> Node:
    """Join parts, and adjacent literals; a single part is returned itself."""
    nodes: list[Node] = []
    for part in parts:
        for node in part.parts if isinstance(part, Seq) else (part,):
            last = nodes[-1] if nodes else None
            if isinstance(node, Lit) and isinstance(last, Lit):
                nodes[-1] = Lit(last.text + node.text)
            elif not isinstance(node, Lit) or node.text:  # an empty literal is omitted
                nodes.append(node)
    return nodes[0] if len(nodes) == 1 else Seq(tuple(nodes))


def make_choice(*options: Node) -> Node:
    """Build a choice without duplicates; a single option is returned itself."""
    distinct = tuple(dict.fromkeys(options))
    return distinct[0] if len(distinct) == 1 else Alternatives(distinct)


def make_optional(node: Node) -> Node:
    return make_choice(node, EMPTY_NODE)


def make_each(members: tuple[EachMember, ...], between: Node, free: int) -> Node:
    """Allow any order, as far as `free` permits: for required members first, because models omit those least."""
    order = sorted(range(len(members)), key=lambda place: (not members[place].required, place))
    chosen = {*order[:free]}
    return Each(
        tuple(member for place, member in enumerate(members) if place in chosen),
        tuple(member for place, member in enumerate(members) if place not in chosen),
        between,
    )


# The automaton of free text ends at the same place as the reader. Grammars cannot express "any text without this", so
# it is spelled out: one state for each proper prefix of a stop that the text so far may end in. Stops are the very
# parts that the reader searches for, including their loose white space. With the plain closer alone, a file that
# contains it would be cut there without a trace.


BLANKS = " \t\n\r\f\v"
"""White space between markup. The reader also skips that of other scripts, which no model writes there."""


class AutomatonState(msgspec.Struct, frozen=True):
    """A state of the automaton: which character leads to which state."""

    moves: tuple[tuple[str, int], ...]
    """Characters, and the number of the state that they lead to."""
    banned: str
    """Characters that would complete a stop."""
    others: int
    """The number of the state that all other characters lead to."""
    final: bool
    """True if the text may end here."""


class _Nfa:
    """A nondeterministic automaton of stops: its nodes are positions in stops.

    `transitions` and `empty_transitions` list the next nodes of each node, with and without characters; `stops` and
    `banned_ends` are the last nodes of the stops and of the text that must not come last.
    """

    def __init__(self) -> None:
        self.transitions: list[list[tuple[str, int]]] = []
        self.empty_transitions: list[list[int]] = []
        self.stops: set[int] = set()
        self.banned_ends: set[int] = set()

    def add_node(self) -> int:
        self.transitions.append([])
        self.empty_transitions.append([])
        return len(self.transitions) - 1

    def add_sequence(self, parts: Sequence[Part], at: int) -> int:
        """Add a sequence after a node and return the node after it.

        The sequence ends at a part that matches any character.
        """
        for part in parts:
            match part:
                case Lit(text):
                    for character in text:
                        at = self._add_step(at, character)
                case Space():
                    loop = self.add_node()
                    self.empty_transitions[at].append(loop)
                    self.transitions[loop].append((BLANKS, loop))
                    self.transitions[self._add_step(loop, "\\")].append(("n", loop))
                    at = loop
                case OneOf(words, _, any_case):
                    at = self._join(self._add_word(word, at, any_case) for word in words)
                case Maybe(inner):
                    at = self._join([at, self.add_sequence(inner, at)])
                case AnyOf(choices):
                    at = self._join([self.add_sequence(inner, at) for inner in choices])
                case Group(inner, _):
                    at = self.add_sequence(inner, at)
                case PatternChars(allowed):
                    if allowed != r"\s":
                        return at
                    after = self.add_node()
                    self.transitions[at].append((BLANKS, after))
                    at = after
        return at

    def find_closure(self, nodes: Iterable[int]) -> frozenset[int]:
        reached: set[int] = set()
        stack = [*nodes]
        while stack:
            node = stack.pop()
            if node not in reached:
                reached.add(node)
                stack += self.empty_transitions[node]
        return frozenset(reached)

    def _add_step(self, at: int, characters: str) -> int:
        after = self.add_node()
        self.transitions[at].append((characters, after))
        return after

    def _add_word(self, word: str, at: int, any_case: bool) -> int:
        for character in word:
            at = self._add_step(at, "".join({character.lower(), character.upper()}) if any_case else character)
        return at

    def _join(self, ends: Iterable[int]) -> int:
        ends, after = [*ends], self.add_node()
        for end in ends:
            self.empty_transitions[end].append(after)
        return after


BYTES_PER_STATE = 1000
"""Estimated size of a state, in bytes."""


def list_states(text: FreeText) -> tuple[AutomatonState, ...]:
    """List the states of a text; the first one is the start."""
    return COMPILED_PATTERNS.get_or_make(
        (AutomatonState, text), lambda: _build_automaton(text), lambda states: len(states) * BYTES_PER_STATE
    )


def _build_automaton(text: FreeText) -> tuple[AutomatonState, ...]:
    # Step 1: Build a nondeterministic automaton of everything that ends the text.
    nfa = _Nfa()
    root = nfa.add_node()
    nfa.stops = {nfa.add_sequence(parts, root) for parts in text.stops}
    nfa.banned_ends = {nfa.add_sequence(parts, root) for parts in text.banned_ends}
    # Step 2: Make it deterministic. `root` is part of each state, because a stop may begin at any character.
    start = nfa.find_closure([root])
    numbers = {start: 0}
    queue, made = [start], []
    while queue:
        here = queue.pop(0)
        moves_to: dict[int, str] = {}
        banned = ""
        for character in sorted(
            {character for node in here for characters, _ in nfa.transitions[node] for character in characters}
        ):
            moved = [to for node in here for characters, to in nfa.transitions[node] if character in characters]
            there = nfa.find_closure([root, *moved])
            if there & nfa.stops:
                banned += character
                continue
            if there not in numbers:
                numbers[there] = len(numbers)
                queue.append(there)
            moves_to[numbers[there]] = moves_to.get(numbers[there], "") + character
        moves = tuple((characters, to) for to, characters in moves_to.items())
        made.append(AutomatonState(moves, banned, 0, not here & nfa.banned_ends))
    # Step 3: Merge equivalent states, which keeps the grammar short.
    return _merge_states(made)


def _merge_states(states: Sequence[AutomatonState]) -> tuple[AutomatonState, ...]:
    """Merge the states with the same continuations."""
    # Moore's algorithm: split the groups of states until the states of each group lead to the same groups.
    groups, group_count = [0] * len(states), 0
    while True:
        numbers: dict[tuple[object, ...], int] = {}
        new_groups = []
        for number, state in enumerate(states):
            targets = {character: groups[to] for characters, to in state.moves for character in characters}
            targets = {character: to for character, to in targets.items() if to != groups[state.others]}
            kind = (
                groups[number],
                state.final,
                frozenset(state.banned),
                groups[state.others],
                frozenset(targets.items()),
            )
            new_groups.append(numbers.setdefault(kind, len(numbers)))
        groups = new_groups
        if len(numbers) == group_count:
            break
        group_count = len(numbers)
    return tuple(_renumber(states[groups.index(number)], groups) for number in range(group_count))


def _renumber(state: AutomatonState, groups: Sequence[int]) -> AutomatonState:
    moves_to: dict[int, str] = {}
    for characters, to in state.moves:
        if groups[to] != groups[state.others]:
            moves_to[groups[to]] = moves_to.get(groups[to], "") + characters
    moves = tuple(("".join(sorted(characters)), to) for to, characters in moves_to.items())
    return AutomatonState(moves, state.banned, groups[state.others], state.final)


def is_free_text(text: FreeText, value: str) -> bool:
    """Return True if a value matches the text."""
    automaton = list_states(text)
    at = automaton[0]
    for character in value:
        if character in at.banned:
            return False
        at = automaton[next((to for characters, to in at.moves if character in characters), at.others)]
    return at.final
