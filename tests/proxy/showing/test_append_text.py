"""Appending text to a file on a disk that becomes full."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from vtc.proxy.showing.log_file import append_text


@contextmanager
def longest(size: int) -> Iterator[None]:
    """Limit the length of files as a full disk would: the text is written as far as it fits, then there is an error."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_text_is_added_at_the_end(tmp_path: Path) -> None:
    for text in ("first\n", "", "é\n" * 100_000):
        append_text(tmp_path / "file", text)
    assert (tmp_path / "file").read_text(encoding="utf-8") == "first\n" + "é\n" * 100_000


@pytest.mark.parametrize("size", [10, 11, 4096])
def test_text_that_does_not_fit_has_no_side_effects(size: int, tmp_path: Path) -> None:
    file = tmp_path / "file"
    append_text(file, "0123456789")
    with longest(size), pytest.raises(OSError, match="File too large"):
        append_text(file, "x" * 5000)
    assert file.read_text() == "0123456789"
    append_text(file, "x" * 5000)
    assert file.stat().st_size == 5010


def test_full_device_is_an_error() -> None:
    with pytest.raises(OSError, match="No space left on device"):
        append_text(Path("/dev/full"), "text")
