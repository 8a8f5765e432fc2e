"""Drafts of a dialect: many descriptions are tried on samples, and the one that reads most of them is the draft.

Facts that the samples do not show are marked as unsure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from vtc.deriving.conversations import KnownCall, serialize_call
from vtc.deriving.slots import is_marker
from vtc.dialects import Description, PatternError, Reader, compile_grammar
from vtc.dialects.syntax.forms import CODE_FENCES
from vtc.dialects.writing.calls import write_calls
from vtc.events import Call, Text, Tool, ToolCall
from vtc.profiles.document import format_count
from vtc.scrub import escape_invisible

PROMPT_TEMPLATE = """These are the tools:
{% for tool in tools %}
{{ tool.declaration.function | tojson }}
{% endfor %}
To use one, write:
{{ example }}
"""
GENERAL_KEYS = {"result": "Result of {name}:\n{result}", "prompt": PROMPT_TEMPLATE}
"""Keys of a draft whose samples show nothing of them."""
MAX_SHOWN_LINES = 20
"""Maximum number of lines of the sample in a draft's comment."""


@dataclass(frozen=True, slots=True)
class Sample:
    """A reply to draft a dialect from."""

    text: str
    calls: Sequence[KnownCall] | None = None
    """Its calls; None if they are not known."""
    rest: str = ""
    """Its text next to the calls, if they are known."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A possible description of the samples' dialect."""

    keys: Mapping[str, Any]
    """Keys of the dialect's file."""
    unsure: Mapping[str, str] = field(default_factory=dict)
    """Reasons why values of keys are unsure, by key."""
    calls: tuple[Call, ...] = ()
    """The calls that the draft reads in the samples."""
    rest: str = ""
    """The rest of the samples' text."""
    exact: int = 0
    """The number of samples with known calls that are read exactly."""
    problem: str = ""
    """The reason why the draft is not a valid description; empty if it is valid."""
    source: str = ""
    """The source of the samples, for people."""
    sample: str = ""
    """The text of a sample, for people."""
    samples: Sequence[Sample] = ()
    """The samples that were read."""
    notes: Sequence[str] = ()
    """Facts that no dialect contains, for people."""

    @property
    def description(self) -> Description:
        """The description. Raises ValueError if it is invalid."""
        description = msgspec.convert(self.keys, Description)
        description.check(template=False)
        return description

    def render_lines(self) -> Iterator[str]:
        """Render the dialect's file, with a sample and notes as comments, and with marks at unsure values."""
        yield f"# A draft by `vtc new-dialect` of {self.source}:"
        yield "#"
        # Escape invisible characters, because a file that users copy must not hide any.
        lines = self.sample.strip().splitlines()[:MAX_SHOWN_LINES]
        yield from (f"#   {escape_invisible(line)}".rstrip() for line in lines)
        yield "#"
        yield from (f"# {escape_invisible(note)}" for note in self.notes)
        if not self.calls:
            yield f"# The draft reads no call in it: {self.problem or 'its patterns do not match'}."
        elif not self.notes:
            yield f"# The draft reads {format_count(len(self.calls), 'call')} in it."
        for key, value in sorted(self.keys.items(), key=lambda item: item[0] == "prompt"):
            if key in self.unsure:
                yield f"# unsure: {self.unsure[key]}"
            if key == "prompt":
                yield "prompt: |"
                yield from (f"  {line}".rstrip() for line in value.splitlines())
            else:
                yield f"{key}: {escape_invisible(json.dumps(value, ensure_ascii=False))}"

    def rank(self, tools: Mapping[str, Tool]) -> tuple[float, ...]:
        """Return a rank: higher for exact and complete calls, more arguments, and values and text without markup.

        Among invalid drafts, the one whose pattern covers most of the samples ranks highest.
        """
        if self.problem:
            return False, 0, False, 0, 0, 0, len(str(self.keys["call"]))
        values = [json.loads(call.call.arguments) for call in self.calls]
        wanted = [tools[call.call.name].schema.required if call.call.name in tools else () for call in self.calls]
        whole = all(name in arguments for arguments, names in zip(values, wanted, strict=True) for name in names)
        texts = "".join(str(value) for arguments in values for value in arguments.values() if isinstance(value, str))
        markup_characters = sum(character in "<>[]{}|=@\"'`" for character in texts + self.rest)
        return (
            True,
            self.exact,
            bool(self.calls) and whole,
            len(self.calls),
            sum(map(len, values)),
            -markup_characters,
            -len(str(self.keys["call"])),
        )


def choose_draft(
    drafts: Iterable[Draft], samples: Sequence[Sample], tools: Mapping[str, Tool], name: str
) -> Draft | None:
    """Read the samples with all drafts, and choose the best one; None if there are none."""
    return max(
        (try_draft(draft, samples, tools, name) for draft in drafts), key=lambda one: one.rank(tools), default=None
    )


def try_draft(draft: Draft, samples: Sequence[Sample], tools: Mapping[str, Tool], name: str) -> Draft:
    """Read the samples with a draft; set `problem` if the draft is not a valid description."""
    tried = Draft(
        {
            "kind": "dialect",
            "name": name,
            **draft.keys,
            **{key: value for key, value in GENERAL_KEYS.items() if key not in draft.keys},
        },
        draft.unsure,
    )
    try:
        calls, rest, exact = read_samples([tried.description], samples, tools)
    except ValueError as error:  # an invalid pattern or key
        key = f"{error.key}: " if isinstance(error, PatternError) else ""
        return replace(tried, problem=f"{key}{error}")
    return replace(tried, calls=calls, rest=rest, exact=exact, samples=samples)


def read_samples(
    dialects: Iterable[Description], samples: Iterable[Sample], tools: Mapping[str, Tool]
) -> tuple[tuple[Call, ...], str, int]:
    """Read samples in dialects; return the calls, the rest of the text, and the number of samples read exactly."""
    calls: list[Call] = []
    rest: list[str] = []
    exact = 0
    grammar = compile_grammar(tuple(dialects))
    for sample in samples:
        events = Reader(grammar, tools).read_whole(sample.text)
        found = [event for event in events if isinstance(event, Call)]
        text = "".join(event.raw for event in events if isinstance(event, Text)).strip()
        read = [serialize_call(event.name, json.loads(event.arguments)) for event in found]
        exact += sample.calls is not None and read == [
            serialize_call(call.name, call.arguments) for call in sample.calls
        ]
        calls += found
        rest.append(text.replace(sample.rest, "", 1))
    return tuple(calls), "".join(rest), exact


def count_rendered(draft: Draft, samples: Sequence[Sample], tools: Mapping[str, Tool]) -> int:
    """Count the samples that the draft writes exactly as they are."""
    if draft.problem:
        return 0
    texts = [render_calls(sample.calls or (), draft, tools).strip() for sample in samples]
    return sum(text == sample.text.strip() for text, sample in zip(texts, samples, strict=True))


def render_calls(calls: Sequence[KnownCall], draft: Draft, tools: Mapping[str, Tool]) -> str:
    """Write calls as a draft describes them. Raises ValueError if its description is invalid."""
    plain = [ToolCall(call.name, json.dumps(call.arguments, ensure_ascii=False), call.id) for call in calls]
    return write_calls(plain, draft.description, tools)


def derive_conditions(head: str) -> dict[str, Any]:
    """Derive keys that keep ordinary text from being read as a call.

    Without a marker, the name must be that of a declared tool. A call in a code block must also end the reply.
    """
    if head.lstrip().startswith(CODE_FENCES):
        return {"anchor": "line", "ends_reply": True, "names": "declared"}
    return {} if is_marker(head) else {"names": "declared"}
