"""The recorded replies of `tests/cases/reading`: each read whole and in every cut, alone and next to other text."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from tests.dialects.material import (
    CASES,
    DIALECTS,
    Case,
    calls,
    cases,
    content,
    dump_typed,
    merge_events,
    random_cuts,
    raw,
    single_cuts,
)
from vtc.events import Call, Event, Reasoning, UnreadCall

FILES = sorted(path.stem for path in (CASES / "reading").glob("*.yaml"))
ALL = [pytest.param(case, id=f"{file}: {case.name}") for file in FILES for case in cases(file)]
WITH_OTHERS = [param for param in ALL if not param.values[0].alone]
AROUND = [("Before.\n\n", ""), ("", "\nAfter."), ("Before.\n", "\n\nAfter.\n")]
"""Text before and after a case."""


def check(case: Case, events: list[Event]) -> None:
    """Check that the events match the case, except for the content."""
    wanted = [(name, arguments) for call in case.calls for name, arguments in call.items()]
    assert dump_typed(calls(events, proved=case.proved)) == dump_typed(wanted)
    found = [event for event in events if isinstance(event, Call)]
    assert [repair for event in found for repair in event.repairs] == list(case.repairs)
    refusals = [event.reason for event in events if isinstance(event, UnreadCall)]
    assert len(refusals) == len(case.refusals), refusals
    for reason, part in zip(refusals, case.refusals, strict=True):
        assert part in reason


@pytest.mark.every
@pytest.mark.parametrize("case", ALL, scope="module")
def test_a_reply_reads_as_recorded_and_is_all_there(case: Case) -> None:
    events = case.read([case.text])
    check(case, events)
    assert content(events) == (case.text if case.as_is else case.content)
    assert raw(event for event in events if isinstance(event, Reasoning)) == case.reasoning
    assert raw(events) == case.text


@pytest.mark.halved
@pytest.mark.every
@pytest.mark.parametrize("case", ALL, scope="module")
def test_a_cut_anywhere_changes_nothing(case: Case, some: Any) -> None:
    whole = merge_events(case.read([case.text]))
    for cut in chain([[*case.text]], some(single_cuts(case.text), 16), random_cuts(case.text, 2)):
        events = case.read(cut)
        assert merge_events(events) == whole, cut
        assert raw(events) == case.text, cut


@pytest.mark.parametrize("case", WITH_OTHERS, scope="module")
def test_text_around_is_kept_and_changes_nothing(case: Case) -> None:
    for before, after in AROUND:
        text = before + case.text + after
        events = case.read([text])
        check(case, events)
        expected = before + (case.text if case.as_is else case.content) + after
        if case.calls:
            # Some white space next to a call is dropped; the cases state which.
            assert content(events).split() == expected.split()
        else:
            assert content(events) == expected
        assert merge_events(case.read(text)) == merge_events(events)
        assert raw(events) == text


def test_every_dialect_has_recorded_replies() -> None:
    assert set(DIALECTS) <= set(FILES)
    for name in DIALECTS:
        assert len([case for case in cases(name) if case.calls]) >= 2, name
