"""What every policy is: a class that must say of which tools it may refuse calls before it can be made.

All that depends on it follows from that: whether anything may leave unseen, which openers are parted for a text client,
and what becomes of a call on which the policy fails. A guard that refuses another call is wrong: `Chain` tells so, and
refuses the call.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from vtc.events import Event, OnFailure

type Refuses = Callable[[str], bool] | None
"""Tells by the name of a tool if its calls may be refused, or must not leave unchanged; None: no call ever."""


class Guard(ABC):
    """A policy on one choice of a reply; the `raw` of what it returns, joined, is that of what it was fed."""

    held = ""
    """Text that it has not returned yet."""
    reads_text = False
    """False if it passes all text at once, as it came."""

    def __init__(self, *, refuses: Refuses, on_failure: OnFailure) -> None:
        self.refuses = refuses
        self.on_failure: OnFailure = on_failure if refuses else "pass"
        """What becomes of a call on which it raises. With `refuse`, nothing may leave that it has not seen."""

    def may_refuse(self, name: str) -> bool:
        """True if a call of this tool may be one that is not to be carried out."""
        return self.refuses is not None and self.refuses(name)

    @abstractmethod
    def feed(self, event: Event) -> list[Event]: ...

    def finish(self) -> list[Event]:
        """Return what is held."""
        return []


class UndeclaredRefusalError(Exception):
    """A guard refused a call that its `refuses` does not name."""


def always(_: str) -> bool:
    """Name all tools."""
    return True
