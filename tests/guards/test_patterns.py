"""Names of tools as policies give them."""

from __future__ import annotations

import pytest

from vtc.guards.patterns import Patterns, any_match, check, check_glob


@pytest.mark.parametrize(
    ("patterns", "name", "found"),
    [
        ("*", "read", True),
        ("read", "READ", True),
        ("read", "read_file", False),
        ("read_*", "read_file", True),
        ("READ_*", "read_file", True),
        (("write", "read_*"), "read_file", True),
        ("/^(get|list)_/", "List_files", True),
        ("/^(get|list)_/", "to_list_files", False),
        ("/file/", "read_file_now", True),
        ("[ab]ash", "bash", True),
        ("a.b", "axb", False),
        ((), "read", False),
        ("/", "/", True),
    ],
)
def test_a_glob_holds_for_all_of_a_name_and_an_expression_for_a_part(
    patterns: Patterns, name: str, found: bool
) -> None:
    assert any_match(patterns, name) is found


@pytest.mark.parametrize("glob", ["/x.*/", r"/^gpt-\d/", "/a|b/"])
def test_an_expression_where_only_globs_are_taken_is_told_of(glob: str) -> None:
    with pytest.raises(ValueError, match="only globs are taken here"):
        check_glob(glob)


@pytest.mark.parametrize("glob", ["*x*", "/v1/chat/", "a.b", "/", "[ab]*"])
def test_a_glob_is_a_glob(glob: str) -> None:
    check_glob(glob)


def test_what_is_no_expression_is_told_of() -> None:
    check(("(", "[", "/fine/"), "denied_tools")
    with pytest.raises(ValueError, match=r"^denied_tools: '/\(/' is no regular expression: .*position 1"):
        check(("fine", "/(/"), "denied_tools")
