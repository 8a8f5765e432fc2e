"""Profiles that are edited during a run."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy import exceptions
from mitmproxy.test import taddons

from tests.apis import chat
from vtc.apis.openai_chat import Request
from vtc.profiles import Facts, loader
from vtc.proxy.addon import VirtualToolCalling
from vtc.proxy.reload import Reloader

GOOD = "kind: model\nname: {}\nmatch: {{model: [lab-*]}}\n"


class Running:
    """An addon with a directory of profiles."""

    def __init__(self, addon: VirtualToolCalling, context: taddons.context, directory: Path) -> None:
        self.addon = addon
        self.context = context
        self.directory = directory
        (self.reloader,) = (one for one in addon.addons if isinstance(one, Reloader))
        self._edits = 0

    def edit(self, text: str, name: str = "mine.yaml") -> None:
        """Write a file with a unique modification time, however coarse the file system's clock is."""
        file = self.directory / name
        file.write_text(text)
        self._edits += 1
        os.utime(file, ns=(self._edits * 10**9,) * 2)

    @property
    def model(self) -> str:
        """Return the profile that a request gets now."""
        assert self.addon.planner is not None
        request = Request(chat.encode_json(chat.request()))
        return self.addon.planner.plan(Facts(model="lab-1"), request).stack.model.name


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    addon = VirtualToolCalling()
    with taddons.context(addon) as context:
        found = Running(addon, context, tmp_path)
        found.edit(GOOD.format("first"))
        context.configure(addon, vtc_profiles=[str(tmp_path)])
        yield found


def test_an_edit_is_picked_up(running: Running) -> None:
    assert running.model == "first"
    running.edit(GOOD.format("second"))
    running.reloader.check_files()
    assert running.model == "second"


def test_a_new_file_and_a_removed_one(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    running.edit(GOOD.format("newer") + "priority: 5\n", "newer.yaml")
    running.reloader.check_files()
    assert running.model == "newer"
    (running.directory / "newer.yaml").unlink()
    running.reloader.check_files()
    assert running.model == "first"
    warning = next(record.getMessage() for record in caplog.records if record.levelno == logging.WARNING)
    assert warning.endswith("; removed: model newer")


def test_without_an_edit_nothing_is_read(running: Running) -> None:
    planner = running.addon.planner
    running.reloader.check_files()
    assert running.addon.planner is planner


def test_bad_edit_is_reported_once_and_the_last_good_profiles_stay(
    running: Running, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "vtc")
    running.edit("kind: model\nname: broken\nmatch: {model: [lab-*]}\nlenientt: true\n")
    for _ in range(3):
        running.reloader.check_files()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "mine.yaml:4: lenientt: unknown key" in record.getMessage()
    assert "stay in use" in record.getMessage()
    assert running.model == "first"
    running.edit(GOOD.format("mended"))
    running.reloader.check_files()
    assert running.model == "mended"


MISTAKES = {
    "a text for a number": b"kind: model\nname: m\nmatch: {}\nready: {context: 64k}\n",
    "half a character": b'kind: model\nname: m\nmatch: {}\ndialect: "\\uD800"\n',
    "no text": b"\xff\xfe\x00",
    "no mapping": b"- 1\n",
    "no YAML": b"kind: [\n",
}


@pytest.mark.parametrize("mistake", MISTAKES)
async def test_watch_reports_each_mistake_once_and_its_repair(
    mistake: str, running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO, "vtc")
    looks = asyncio.Queue[None](1)

    async def each_look(_: float) -> None:
        await looks.put(None)

    monkeypatch.setattr(asyncio, "sleep", each_look)
    running.reloader.running()
    (running.directory / "mine.yaml").write_bytes(MISTAKES[mistake])
    for _ in range(4):
        await looks.get()
    (record,) = caplog.records
    assert record.levelno == logging.ERROR
    assert "mine.yaml:" in record.getMessage()
    running.edit(GOOD.format("mended"))
    for _ in range(3):
        await looks.get()
    assert running.model == "mended"
    running.reloader.done()


def test_internal_fault_is_reported_and_the_next_edit_is_read(
    running: Running, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(loader, "load_profiles", lambda _: 1 / 0)
        running.edit(GOOD.format("second"))
        running.reloader.check_files()
    assert "the profiles cannot be read" in caplog.text
    assert "ZeroDivisionError" in caplog.text
    assert running.model == "first"
    running.edit(GOOD.format("third"))
    running.reloader.check_files()
    assert running.model == "third"


def test_unreadable_file_is_reported_once(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    (running.directory / "circle.yaml").symlink_to("circle.yaml")
    running.reloader.check_files()
    running.reloader.check_files()
    (record,) = caplog.records
    assert "circle.yaml:1: cannot be read" in record.getMessage()


def test_a_directory_that_is_gone_is_a_bad_edit(running: Running, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").unlink()
    tmp_path.rmdir()
    running.reloader.check_files()
    assert running.model == "first"
    tmp_path.mkdir()


def test_bad_options_are_still_refused(running: Running) -> None:
    with pytest.raises(exceptions.OptionsError, match="no such directory"):
        running.context.configure(running.addon, vtc_profiles=["/nowhere/at/all"])
    assert running.model == "first"
