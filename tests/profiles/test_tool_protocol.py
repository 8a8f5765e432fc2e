"""The dialects that are read for a model."""

from __future__ import annotations

from msgspec.structs import replace

from vtc.profiles import builtin_directory, load_profiles
from vtc.profiles.stack import UNKNOWN_MODEL
from vtc.profiles.tool_protocol import list_dialects

PROFILES = load_profiles([builtin_directory()])


def test_a_model_without_a_profile_is_read_in_every_dialect_with_markup_of_its_own() -> None:
    assert [*list_dialects(PROFILES, UNKNOWN_MODEL)] == [*PROFILES.rescued]


def test_what_is_expected_comes_first_then_what_the_profile_accepts_and_nothing_twice() -> None:
    named = replace(UNKNOWN_MODEL, accept=("hermes", "bare-json"))
    read = [one.name for one in list_dialects(PROFILES, named, PROFILES.dialects["invoke"])]
    assert read[:3] == ["invoke", "hermes", "bare-json"]
    assert len(read) == len({*read})


def test_the_model_s_own_dialects_may_stand_in_a_code_block_chosen_or_not() -> None:
    named = replace(UNKNOWN_MODEL, accept=("hermes", "bare-json"))
    for first in ((), (PROFILES.dialects["hermes"],), (PROFILES.dialects["invoke"],)):
        assert {one.name for one in list_dialects(PROFILES, named, *first) if one.fenced} == {"hermes", "bare-json"}
