"""Count what a parameter's value opens and closes: parameters and calls that it quotes.

    <parameter=content>
    Write <function=bash><parameter=command>ls</parameter></function>     opened and closed: content
    </parameter>                                                          nothing in the value opened it: a closer

A closer pairs with the last opener of its kind that is still open. An opener in between was a word of the text, as in
"write <parameter=x> in it", and is forgotten.
"""

from __future__ import annotations

PARAMETER = 0
CALL = 1
NEXT_CALL = 2
"""A call whose opening tag stands directly after a closer that nothing opened: it may be the reply's next call."""


class Nesting:
    """What one value has opened so far and not closed again."""

    __slots__ = ("_follows", "_open", "_parameters", "adjacent", "balance", "calls")

    def __init__(self) -> None:
        self._open: list[int] = []
        self._parameters = 0
        self._follows = False
        self.calls = 0
        """Calls that are open."""
        self.balance = 0
        """Openers of parameters less closers of parameters, whether they pair or not."""
        self.adjacent = False
        """A quoted closer of a parameter had another parameter right after it, outside of a quoted call."""

    def open_parameter(self) -> None:
        self._open.append(PARAMETER)
        self._parameters += 1
        self.balance += 1

    def open_call(self) -> None:
        self._open.append(NEXT_CALL if self._follows else CALL)
        self._follows = False
        self.calls += 1

    def call_follows(self) -> None:
        """Note that the next opener of a call stands directly after a closer that nothing opened."""
        self._follows = True

    def close_parameter(self) -> bool:
        """Pair a parameter's closer with an opener; False if none is open."""
        self.balance -= 1
        if not self._parameters:
            return False
        while self._open.pop() != PARAMETER:
            self.calls -= 1
        self._parameters -= 1
        return True

    def close_call(self) -> int | None:
        """Pair a call's closer with an opener, and return the kind of that; None if no call is open."""
        if not self.calls:
            return None
        while (kind := self._open.pop()) == PARAMETER:
            self._parameters -= 1
        self.calls -= 1
        return kind
