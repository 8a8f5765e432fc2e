"""Check dialects with the chat templates of real models: built-in and derived ones (`make test-templates`)."""

from __future__ import annotations

import time
from collections import Counter
from functools import partial

import pytest

from tests.real_templates import AXOLOTL, LLAMA_CPP, list_model_dialects, load_templates
from vtc.cli.templates import check_replies, render_template, write_cases
from vtc.deriving import derive_dialect

pytestmark = pytest.mark.templates

UNREAD = {
    "LFM2.5-8B-A1B": {"markup"},  # the template does not escape quotes
    "muse-glimmer": {"two calls", "three calls"},  # each call is a message, and the first one ends the reply
    "llama4": {"*"},  # empty markers before each call
}
"""Cases that the model's dialects do not read, by template: faults of the templates."""


@pytest.mark.parametrize(("package", "with_calls"), [(LLAMA_CPP, 62), (AXOLOTL, 14)])
def test_each_model_profile_reads_the_calls_of_its_template(package: str, with_calls: int) -> None:
    counts: Counter[str] = Counter()
    problems: list[str] = []
    writers = 0
    for name, source in load_templates(package).items():
        written = write_cases(source)
        writers += bool(written.texts)
        for result in check_replies(written, list_model_dialects(name)):
            counts[result.outcome] += 1
            known = UNREAD.get(name, set())
            if result.outcome in ("text", "different") and not {"*", result.name} & known:
                problems.append(f"{name}: {result.name}: {result.text} -> {result.found}")
    print(f"{package}: {writers} templates write calls: {dict(counts)}")  # noqa: T201
    assert not problems, "\n".join(problems)
    assert writers == with_calls


@pytest.mark.parametrize(("package", "whole"), [(LLAMA_CPP, 61), (AXOLOTL, 13)])
def test_derived_dialects_read_calls_that_they_were_not_derived_from(package: str, whole: int) -> None:
    """The built-in dialects take no part: each reply is read by the derived dialect alone."""
    total: Counter[str] = Counter()
    counts_of: dict[str, Counter[str]] = {}
    for name, source in load_templates(package).items():
        written = write_cases(source)
        if not written.texts:
            continue
        begin = time.process_time()
        draft = derive_dialect(partial(render_template, source), "derived")
        seconds = time.process_time() - begin
        dialects = [draft.description] if draft and not draft.problem else []
        counts = Counter(result.outcome for result in check_replies(written, dialects))
        del counts["not written"]
        counts_of[name] = counts
        total += counts
        print(f"{name:50}{seconds:5.1f} s  {dict(counts)}")  # noqa: T201
    print(f"{package}: {dict(total)}")  # noqa: T201
    assert total["exact"] >= 0.99 * total.total()
    assert total["different"] <= 0.001 * total.total()
    assert sum(counts["exact"] == counts.total() for counts in counts_of.values()) >= whole
