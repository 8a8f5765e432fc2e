"""Options, selection of parameters and fixtures for all tests."""

from __future__ import annotations

import errno
import gc
import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from zlib import crc32

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import settings
from mitmproxy.log import LegacyLogEvents

from vtc.cli import local_servers
from vtc.dialects.bounded_cache import COMPILED_PATTERNS
from vtc.proxy import launch

# No deadline: the time for one example depends on the machine, not on the code.
settings.register_profile("default", deadline=None)
# Each run draws different examples, so a few runs find as much as one run of 100; `make test-all` draws 100.
settings.register_profile("quick", deadline=None, max_examples=12)
# For a night's search: `pytest --hypothesis-profile=thorough`.
settings.register_profile("thorough", deadline=None, max_examples=5_000)
# A test run compiles more dialects than any proxy does; compiling their patterns again would take most of the time.
COMPILED_PATTERNS.max_bytes = 256 << 20


MAX_SETS_FOR_EACH_VALUE = 24
"""Maximum number of parameter sets of a test of which a run tries each value; of more, it tries one in twelve."""
MAX_SETS_FOR_ONE_IN_TWELVE = 96
"""Maximum number of parameter sets of a test of which a run tries one in twelve; of more, it tries one in 24."""
MAX_SETS_FOR_ALL = 6
"""Maximum number of parameter sets of a test of which a run tries all."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run each test with all its parameters (`make test-all`)")


def pytest_configure(config: pytest.Config) -> None:
    """Collect garbage rarely, because most objects of a test run live to its end, and full collections take a tenth
    of its time. Draw fewer examples of each property when the run also selects among the parameters of each test.
    """
    gc.set_threshold(100_000, 50, 1_000)
    if not config.getoption("--hypothesis-profile"):
        settings.load_profile("default" if _runs_all_parameters(config) else "quick")


def _runs_all_parameters(config: pytest.Config) -> bool:
    return bool(config.getoption("--all")) or any("::" in name for name in config.args)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Select among the parameters of a test before pytest creates a test for each set and discards two thirds of them.

    Up to `MANY` sets, each value of each parameter is tried, but not each combination, so a list of cases is tried
    whole. Above that, one in twelve or one in 24 is tried. The selection differs between tests, so each dialect, API
    and policy is tried by many tests. Of a test that is marked `halved`, one in two of the selected sets is tried, and
    `make test-rest` tries the others. A test that is named on the command line runs with all its parameters.
    """
    yield
    if not metafunc._calls:
        return
    sets = _select_sets(metafunc)
    others = _list_other_half(metafunc, sets) if metafunc.definition.get_closest_marker("halved") else []
    if not _runs_all_parameters(metafunc.config):
        # Keep at least one: if all are marked `rest`, `pytest_collection_modifyitems` deselects the test.
        metafunc._calls = [chosen for chosen in sets if chosen not in others] or metafunc._calls[:1]
    for chosen in others:
        chosen.marks.append(pytest.mark.rest.mark)


def _select_sets(metafunc: pytest.Metafunc) -> list[Any]:
    """Return the selected sets of parameters of a test, without the sets that only `make test-rest` runs."""
    test = metafunc.definition
    sets = [chosen for chosen in metafunc._calls if not any(mark.name == "rest" for mark in chosen.marks)]
    if len(sets) <= MAX_SETS_FOR_ALL or test.get_closest_marker("every"):
        return sets
    numbers = {id(chosen): _number_set(test, chosen) for chosen in sets}
    if len(sets) > MAX_SETS_FOR_EACH_VALUE:
        share = test.get_closest_marker("one_in")
        one_in = share.args[0] if share else 24 if len(sets) > MAX_SETS_FOR_ONE_IN_TWELVE else 12
        return [chosen for chosen in sets if not numbers[id(chosen)] % one_in]
    chosen_sets, tried = [], set[tuple[str, object]]()
    for chosen in sorted(sets, key=lambda chosen: numbers[id(chosen)]):
        # Values that are not plain are equal only if they are the same object.
        values = {
            (name, value if isinstance(value, str | int | None) else id(value)) for name, value in chosen.params.items()
        }
        if values - tried:
            tried |= values
            chosen_sets.append(chosen)
    return chosen_sets


def _number_set(test: pytest.Function, chosen: Any) -> int:
    return crc32(f"{test.nodeid}[{chosen.id}]".encode(errors="backslashreplace"))


def _list_other_half(metafunc: pytest.Metafunc, sets: list[Any]) -> list[Any]:
    """Return one in two of the selected sets, always the same."""
    return sorted(sets, key=lambda chosen: _number_set(metafunc.definition, chosen))[1::2]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests that only `make test-rest` runs."""
    if not _runs_all_parameters(config):
        deselected = [item for item in items if item.get_closest_marker("rest")]
        config.hook.pytest_deselected(items=deselected)
        items[:] = [item for item in items if not item.get_closest_marker("rest")]


@pytest.fixture(scope="session")
def some(pytestconfig: pytest.Config) -> Callable[[Iterable[Any], int], Iterator[Any]]:
    """Return a function that yields one in `one_in` examples, always the same, or all if all parameters are tried."""

    def take_some(examples: Iterable[Any], one_in: int) -> Iterator[Any]:
        every = _runs_all_parameters(pytestconfig)
        return (one for one in examples if every or not crc32(repr(one).encode()) % one_in)

    return take_some


def pytest_collection_finish() -> None:
    """Let later collections of garbage skip the objects that exist now."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Collect once and freeze: pytest collects five times at the end, each of which takes a second or two."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report each test once if multiple processes share the tests: six messages for each take longer than most tests.

    Start, end, and successful setups and teardowns are not reported.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return None
    for report in runtestprotocol(item, nextitem=nextitem, log=False):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    return True


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is marked `alone` in a separate process."""
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
    """Unset PYTHONUNBUFFERED: containers and CI often set it, and a program that waits for unflushed output would not
    hang.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("PYTHONUNBUFFERED", raising=False)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_log_handlers_of_tests_before() -> Iterator[None]:
    """Silence mitmproxy's handler for an unused log hook: it outlives its event loop, so a later warning would fail."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LegacyLogEvents, "emit", lambda *_: None)
        yield


@pytest.fixture(scope="session", autouse=True)
def no_servers_of_this_machine() -> Iterator[None]:
    """Refuse connections to the usual ports of model servers: tests must not depend on servers of this machine."""
    connect, usual = socket.create_connection, {*local_servers.USUAL_PORTS, launch.PORT}

    def connect_elsewhere(address: tuple[str, int], *arguments: Any, **more: Any) -> socket.socket:
        if address[1] in usual:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        return connect(address, *arguments, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(socket, "create_connection", connect_elsewhere)
        yield
