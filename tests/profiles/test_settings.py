"""Settings of the user."""

from __future__ import annotations

import pytest

from vtc.profiles import Settings, UnknownName


def test_chosen_settings_are_those_that_differ_from_defaults() -> None:
    assert Settings().list_changed() == {}
    assert Settings(tools="prompt", client_patterns=("a",)).list_changed() == {
        "tools": "prompt",
        "client_patterns": ("a",),
    }


@pytest.mark.parametrize(("name", "hint"), [("hermez", " (did you mean 'hermes'?)"), ("x", "")])
def test_unknown_name_is_reported_with_the_nearest(name: str, hint: str) -> None:
    error = UnknownName("dialect", name, ("hermes", "tag"))
    assert str(error) == f"there is no dialect {name!r}{hint}; `vtc profiles` lists all"
    assert error.setting == "dialect"
