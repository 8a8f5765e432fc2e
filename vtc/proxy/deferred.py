"""Options that were given before there was an addon that has them: mitmproxy keeps their texts until then.

It takes them while it loads the script. What it cannot take it refuses there, where no one sees it, and drops the
script: everything would pass untouched. So the addon has them taken itself, and tells what is wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from mitmproxy import exceptions
from mitmproxy.optmanager import OptManager
from mitmproxy.utils import typecheck

from vtc.profiles.validation import nearest


class Taken(NamedTuple):
    """What there is to tell of options that were given."""

    faults: list[str]
    """Why they cannot be taken."""
    notes: list[str]
    """What was taken otherwise than it was given."""


def take(options: OptManager) -> Taken:
    """Give options the values that wait for them; what is wrong is left out. Of several values the last counts."""
    taken = Taken([], [])
    for name, given in [*options.deferred.items()]:
        if not name.startswith("vtc"):
            continue
        if fault := _fault(options, name, given):
            taken.faults.append(fault)
            del options.deferred[name]
        elif name in options and options._options[name].typespec != Sequence[str]:
            texts = getattr(given, "val", [])
            if len(texts) > 1:
                taken.notes.append(f"{name} is given {len(texts)} times: {texts[-1]}, which comes last, counts")
                del texts[:-1]
    try:
        options.process_deferred()
    except (exceptions.OptionsError, TypeError) as error:  # an option of someone else's
        taken.faults.append(str(error))
    return taken


def valueless(name: str) -> str:
    """Say what to do about an option without a value."""
    return f"{name} has no value: --set {name}=…"


def _fault(options: OptManager, name: str, given: object) -> str:
    """What is wrong with an option: the texts of a command line, or what a file of settings says."""
    if name not in options:
        known = [one for one in options.keys() if one.startswith("vtc")]  # noqa: SIM118 - it cannot be iterated
        return f"there is no option {name}{nearest(name, known)}"
    wanted = options._options[name].typespec
    texts = getattr(given, "val", None)
    if texts == []:
        return valueless(name)
    try:
        if texts is None:
            typecheck.check_option_type(name, given, wanted)
        elif wanted is int:
            int(texts[-1])
    except (TypeError, ValueError):
        return f"{name} must be {KINDS[wanted]}, not {(texts[-1] if texts else given)!r}"
    return ""


KINDS = {int: "a whole number", str: "a text", Sequence[str]: "a list of texts"}
