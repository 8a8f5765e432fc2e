"""What all tests share."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any
from zlib import crc32

import pytest
from hypothesis import settings
from mitmproxy.log import LegacyLogEvents

from vtc.dialects.bounded_cache import COMPILED

# No deadline: how long one example takes says something about the machine, not about the code.
settings.register_profile("default", deadline=None)
# Each run draws others: what one of a hundred examples shows, a few runs show, and `make test-all` at once.
settings.register_profile("quick", deadline=None, max_examples=12)
# For a night's search: `pytest --hypothesis-profile=thorough`.
settings.register_profile("thorough", deadline=None, max_examples=5_000)
# One run meets more dialects than any proxy does: compiling their patterns again would take most of its time.
COMPILED.most_bytes = 256 << 20


MANY = 24
"""Sets of parameters of one test, of more of which each run tries a twelfth."""
MOST = 96
"""The same, of more of which it tries one in 24."""
SOME = 6
"""Sets of parameters of one test, of more of which each run tries so many that each value occurs."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run each test with all its parameters (`make test-all`)")


def pytest_configure(config: pytest.Config) -> None:
    """Draw fewer examples of each property where a run takes fewer sets of parameters of each test."""
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("default" if _all(config) else "quick")


def _all(config: pytest.Config) -> bool:
    return bool(config.getoption("--all")) or any("::" in name for name in config.args)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is left to `make test-all`, and choose among the sets of parameters where a test has many.

    Up to `MANY` sets, each value of each parameter is tried, if not each with each: a list of cases is tried whole. Of
    more, a twelfth is, or one in 24, and those of the next test are others: so each dialect, API and policy is tried by
    many tests. A test that is named on the command line is run with all.
    """
    if _all(config):
        return
    sets: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        if item.get_closest_marker("rest"):
            continue
        sets[item.nodeid.partition("[")[0]].append(item)
    chosen = {id(item) for same in sets.values() for item in _chosen(same)}
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in chosen])
    items[:] = [item for item in items if id(item) in chosen]


def _chosen(items: Sequence[pytest.Item]) -> Iterator[pytest.Item]:
    """Choose among the sets of parameters of one test."""
    if len(items) <= SOME or items[0].get_closest_marker("every"):
        yield from items
    elif len(items) > MANY:
        share = items[0].get_closest_marker("one_in")
        one_in = share.args[0] if share else 24 if len(items) > MOST else 12
        yield from (item for item in items if not _number(item) % one_in)
    else:
        tried: set[tuple[str, object]] = set()
        for item in sorted(items, key=_number):
            assert isinstance(item, pytest.Function)
            # Of what is no plain value, two are alike only if they are the same.
            values = {
                (name, value if isinstance(value, str | int | None) else id(value))
                for name, value in item.callspec.params.items()
            }
            if values - tried:
                tried |= values
                yield item


def _number(item: pytest.Item) -> int:
    """Number a set of parameters: the same in each run, and in no order."""
    return crc32(item.nodeid.encode(errors="backslashreplace"))


@pytest.fixture(scope="session")
def some(pytestconfig: pytest.Config) -> Callable[[Iterable[Any], int], Iterator[Any]]:
    """Take one in so many of the examples in a test, the same in each run; all where all sets of parameters are."""

    def taken(examples: Iterable[Any], one_in: int) -> Iterator[Any]:
        every = _all(pytestconfig)
        return (one for one in examples if every or not crc32(repr(one).encode()) % one_in)

    return taken


def pytest_collection_finish() -> None:
    """Collect garbage seldom, and do not look through tests by the ten thousand then: it takes a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(100_000, 50, 1_000)


def pytest_sessionfinish() -> None:
    """Collect once more what is garbage: pytest does so five times at the end, each of which takes a second or two."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked `alone` in a process of its own."""
    if "PYTEST_XDIST_WORKER" not in os.environ or not pyfuncitem.get_closest_marker("alone"):
        return None
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-n0", pyfuncitem.nodeid],
        cwd=pyfuncitem.config.rootpath,
        env={key: value for key, value in os.environ.items() if not key.startswith("PYTEST_")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return True


@pytest.fixture(scope="session", autouse=True)
def output_is_buffered_as_for_users() -> Iterator[None]:
    """Containers and CI often set this variable; with it a program that waits for a line of ours would never hang."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_log_handlers_of_tests_before() -> Iterator[None]:
    """mitmproxy's handler for a hook that nobody uses any more outlives its event loop: a later warning would fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LegacyLogEvents, "emit", lambda *_: None)
        yield
