"""Check built-in dialects with the chat templates of real models: `make test-templates`."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.real_templates import AXOLOTL, LLAMA_CPP, list_model_dialects, load_templates
from vtc.cli.templates import check_replies, write_cases

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
