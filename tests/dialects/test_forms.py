"""The forms of `tests/cases/forms`, read as in an exchange with their model: whole and in every cut.

Their expectations were written from the rules before they were run.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache
from typing import Any, Literal

import msgspec
import pytest

from tests.dialects.material import CASES, calls, content, dump_typed, merge_events, plain, random_cuts, raw
from tests.exchanges import open_session
from vtc.dialects import Reader, ReaderOptions
from vtc.events import Event, Reasoning
from vtc.profiles import ReadingPlan

HERE = CASES / "forms"
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object", **parameters}}}
    for name, parameters in plain((CASES / "tools.yaml").read_text("utf-8"))["coding"].items()
]


class Form(msgspec.Struct, forbid_unknown_fields=True):
    """A reply of a model and its meaning; `calls` are `{name: arguments}`."""

    form: str
    model: str
    text: str
    calls: tuple[dict[str, dict[str, Any]], ...] = ()
    content: str = ""
    reasoning: str = ""
    finish: Literal["stop", "length"] = "stop"
    missed: str = ""
    """The reason why it is text today; empty if it is read."""

    def read(self, chunks: Iterable[str]) -> list[Event]:
        plan = _plan(self.model)
        reader = Reader(
            plan.grammar,
            plan.tools,
            ReaderOptions(unknown_tools=plan.unknown_tools, begins=plan.thinking.begins(whole=True)),
        )
        events = [event for chunk in chunks for event in reader.feed(chunk)]
        return [*events, *reader.finish(complete=self.finish == "stop")]

    def differences(self, events: list[Event]) -> list[str]:
        wanted = [(name, arguments) for call in self.calls for name, arguments in call.items()]
        found = {
            "calls": (dump_typed(calls(events)), dump_typed(wanted)),
            "content": (content(events), self.content),
            "reasoning": (raw(event for event in events if isinstance(event, Reasoning)), self.reasoning),
        }
        return [f"{key}: {one!r}, not {other!r}" for key, (one, other) in found.items() if one != other]


@cache
def _plan(model: str) -> ReadingPlan:
    return open_session(model=model, tools=TOOLS).plan.reading


FORMS = [
    pytest.param(form, id=f"{path.stem} {place}: {form.form}, {form.model}")
    for path in sorted(HERE.glob("*.yaml"))
    for place, form in enumerate(msgspec.convert(plain(path.read_text("utf-8")), list[Form]))
]


@pytest.mark.one_in(3)
@pytest.mark.parametrize("form", FORMS)
def test_form_has_the_intended_meaning(form: Form) -> None:
    whole = form.read([form.text])
    assert bool(form.differences(whole)) is bool(form.missed), form.differences(whole)
    assert not form.missed or (calls(whole), content(whole)) == ([], form.text)
    assert raw(whole) == form.text


@pytest.mark.parametrize("form", FORMS)
def test_form_has_the_same_meaning_in_every_cut(form: Form) -> None:
    whole = form.read([form.text])
    for cut in ([*form.text], *random_cuts(form.text, 3)):
        assert merge_events(form.read(cut)) == merge_events(whole), cut
