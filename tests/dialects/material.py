"""Helpers for tests of the dialects: dialect files, recorded cases, and reading in any cut."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml

from vtc.dialects import Description, ModelFacts, Reader, ReaderOptions, compile_grammar
from vtc.dialects.reading.call_pieces import can_be_sent_in_pieces
from vtc.dialects.syntax.forms import CallSyntax, list_call_syntaxes
from vtc.dialects.syntax.pattern import BODY_SLOTS, fill_pattern, find_body_slot
from vtc.events import Call, Event, Markup, Reasoning, Text, Tool, UnreadCall
from vtc.profiles import Profiles, builtin_directory, load_profiles
from vtc.proof import CallProver
from vtc.reporting import Case as Recorded

__all__ = ["BODY_SLOTS", "CallSyntax", "fill_pattern", "find_body_slot"]

ROOT = Path(__file__).parents[2]
CASES = ROOT / "tests" / "cases"


def plain(text: str) -> Any:
    """Load a YAML document, with libyaml if PyYAML has it, which takes a tenth of the time."""
    return yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def parse_dialect(text: str) -> Description:
    """Return a dialect from the text of its file."""
    return msgspec.convert(plain(text), Description)


DIALECTS: Mapping[str, Description] = {
    path.stem: parse_dialect(path.read_text("utf-8"))
    for path in sorted((ROOT / "profiles" / "dialects").glob("*.yaml"))
}
COMMON = ("bare-json", "hermes", "invoke", "qwen3-coder", "tag", "tools-tag")
"""One dialect of each family, for tests in which the dialect does not matter."""


def comes_in_pieces(dialect: Description) -> bool:
    """Return True if a call may be emitted before its end; trying it with a reader would compile all dialects."""
    own = [syntax for syntax in list_call_syntaxes(dialect) if syntax.call == dialect.calls[0]]
    return any(can_be_sent_in_pieces(syntax, "a_tool") for syntax in own)


def tools(file: Path) -> dict[str, dict[str, Tool]]:
    """Load the sets of tools of a file."""
    return {
        set_: {name: Tool(name, parameters={"type": "object", **entry}) for name, entry in entries.items()}
        for set_, entries in plain(file.read_text("utf-8")).items()
    }


TOOLS: Mapping[str, Mapping[str, Tool]] = tools(CASES / "tools.yaml")
AGENT = TOOLS["agent"]


@cache
def profiles() -> Profiles:
    """Load the built-in profiles."""
    return load_profiles([builtin_directory()])


TOGETHER = ["bare-json", "hermes", "invoke", "qwen3-coder", "tag", "tools-tag"]
"""Dialects of cases that need more than one."""
SHARED = ("code", "reasoning", "together")
"""Files with such cases."""


class Case(Recorded, forbid_unknown_fields=True, kw_only=True):
    """A recorded case that is read with the built-in dialects."""

    proved: bool = True
    """False if the call contains words that VTC leaves out without a repair, so that it has no proof."""

    def read(self, chunks: Iterable[str]) -> list[Event]:
        return self.read_events(chunks, self.resolve_dialects(profiles()), self.resolve_tools(TOOLS))


def cases(name: str) -> list[Case]:
    """Load the cases of `tests/cases/reading/<name>.yaml`, in the dialects of the file, if any."""
    entries = plain((CASES / "reading" / f"{name}.yaml").read_text("utf-8"))
    own = {"dialects": TOGETHER if name in SHARED else [name]} if name in (*SHARED, *DIALECTS) else {}
    return msgspec.convert([{**own, **entry} for entry in entries], list[Case])


NO_FACTS = ModelFacts()


def read(
    chunks: Iterable[str],
    dialects: Iterable[Description],
    tools: Mapping[str, Tool] = AGENT,
    *,
    complete: bool = True,
    tags: tuple[tuple[str, str], ...] = (),
    facts: ModelFacts = NO_FACTS,
    **options: Any,
) -> list[Event]:
    """Return the events of a reply that arrives as `chunks`; `options` are the reader's."""
    grammar = compile_grammar(tuple(dialects), tags)
    reader = Reader(grammar, tools, ReaderOptions(**options), facts)
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events + reader.finish(complete=complete)


def merge_events(events: Iterable[Event]) -> tuple[list[tuple[Any, ...]], list[tuple[str, ...]]]:
    """Return the events without the effects of cuts: adjacent pieces are joined, refusals are listed separately.

    A refusal has no text, so its position between two pieces of text is arbitrary; and the excerpt of a call that is
    too long depends on the chunk that exceeded the limit.
    """
    pieces: list[tuple[Any, ...]] = []
    refusals = []
    for event in events:
        match event:
            case UnreadCall():
                refusals.append((event.reason, event.dialect, event.name))
            case Call():
                pieces.append((Call, event.raw, event.call, event.dialect, event.repairs))
            case Text() | Reasoning() | Markup():
                if pieces and pieces[-1][0] is type(event):
                    pieces[-1] = (type(event), pieces[-1][1] + event.raw)
                else:
                    pieces.append((type(event), event.raw))
    return pieces, refusals


def raw(events: Iterable[Event]) -> str:
    return "".join(event.raw for event in events)


def content(events: Iterable[Event]) -> str:
    return "".join(event.raw for event in events if isinstance(event, Text))


def calls(events: Iterable[Event], *, proved: bool = True) -> list[tuple[str, Any]]:
    """Return names and decoded arguments; check that each call is `proved`."""
    events = [*events]
    if proved:
        check_proofs(events)
    return [(event.call.name, json.loads(event.call.arguments)) for event in events if isinstance(event, Call)]


def check_proofs(events: Iterable[Event]) -> None:
    """Check that the values of all calls are characters of the reply."""
    prover = CallProver()
    for event in events:
        if isinstance(event, Call):
            proof = prover.prove(event)
            assert proof.holds, (*proof.faults, event.evidence)


def dump_typed(value: Any) -> str:
    """Return JSON in which `1`, `1.0` and `true` are different and the order of keys does not matter."""
    return json.dumps(value, sort_keys=True)


def single_cuts(text: str) -> Iterator[Sequence[str]]:
    for at in range(1, len(text)):
        yield text[:at], text[at:]


def random_cuts(text: str, count: int = 5) -> Iterator[Sequence[str]]:
    """Cuts at random places, the same for the same text."""
    random_ = random.Random(text)
    for _ in range(count):
        places = sorted(random_.choices(range(len(text) + 1), k=random_.randint(2, 12)))
        yield [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]
