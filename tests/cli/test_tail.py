"""Tests of `vtc tail` in a terminal of 80 x 24, with a log from a real proxy."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result
from textual.pilot import Pilot
from textual.widgets import OptionList

from tests.apis import chat
from tests.e2e.conftest import Start, start
from tests.e2e.upstream import Reply
from vtc.cli import main
from vtc.cli.terminal import DraftFile, LogTail, TerminalPage
from vtc.reporting import Case

__all__ = ["start"]

HERMES = chat.DIALECTS["hermes"]
CALLED = "I look. " + HERMES("read", {"filePath": "/my/file"})
CUT = CALLED.removesuffix("</tool_call>")
REFUSED = "I look. " + HERMES("sh.rm", {"filePath": "/my/file"})
UNREAD = "I look. @@read(filePath=/my/file)@@"


async def write_log_by_proxy(start: Start, log: Path, *texts: str) -> None:
    """Write a log of replies with these texts by a real proxy."""
    replies = iter(texts)
    lab = await start(lambda _: Reply(chat.make_stream(next(replies))), vtc_log=str(log), vtc_tools="prompt")
    for _ in texts:
        await lab.post(chat.request("My question.", stream=True))


ENTRY: dict[str, Any] = {
    "time": "2026-11-22T01:02:03.004+00:00",
    "outcome": "rewritten",
    "client": "cline",
    "model": "qwen3",
    "calls": [{"name": "read", "dialect": "hermes", "repairs": []}],
}


def format_entries(*models: str) -> str:
    return "".join(json.dumps({**ENTRY, "asked": model}) + "\n" for model in models)


@asynccontextmanager
async def run_page(log: Path, draft: Any = None) -> AsyncIterator[Pilot[None]]:
    page = TerminalPage(LogTail(log), draft)
    async with page.run_test(size=(80, 24)) as pilot:
        await pilot.pause()
        yield pilot


def read_screen(pilot: Pilot[None]) -> list[str]:
    """Return the lines of the screen."""
    strips = pilot.app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


def get_selected_index(pilot: Pilot[None]) -> int | None:
    return pilot.app.screen.query_one(OptionList).highlighted


async def update_screen(pilot: Pilot[None]) -> list[str]:
    """Read the new lines of the log, and return the lines of the screen."""
    pilot.app.poll_log()  # type: ignore[attr-defined]
    await pilot.pause()
    return read_screen(pilot)


async def test_exchanges_are_listed_and_opened_in_80_by_24(start: Start, tmp_path: Path) -> None:
    log = tmp_path / "vtc.jsonl"
    await write_log_by_proxy(start, log, CALLED, CUT, REFUSED, UNREAD)
    async with run_page(log) as pilot:
        total, heads, *rows = read_screen(pilot)
        assert total.split(", ") == [" 4 exchanges", "2 calls (1 repaired)", "1 left as text", "1 unread"]
        assert heads.split() == ["time", "outcome", "model", "what", "happened"]
        for row, words in zip(
            rows,
            (
                "✓ rewritten     lab-model         read, hermes",
                "✚ repaired ",
                "△ left as text ",
                "a possible call was not",
            ),
            strict=False,
        ):
            assert words in row
        assert rows[21] == " ⏎ open  q quit  ? help"
        assert get_selected_index(pilot) == 3
        await pilot.press("k", "k", "j", "enter")
        text = "\n".join(await update_screen(pilot))
        assert text.startswith(" △ left as text  1 left as text (no tool 'sh.rm' is offered")
        for words in (
            "lab-model · httpx · 127.0.0.1/v1/chat/completions · 200",
            "What VTC did",
            "3 tools -> tag prompt",
        ):
            assert words in text
        await pilot.press("q", "G", "enter")
        assert "What VTC did\n   a possible call was not read\n" in "\n".join(await update_screen(pilot))
        await pilot.press("?", "?")
        assert read_screen(pilot)[0].startswith(" j k  arrows")
        await pilot.press("escape", "escape", "g")
        assert get_selected_index(pilot) == 0
        await pilot.press("q")
    assert not pilot.app.is_running


async def test_growing_and_rotated_log_is_followed_at_the_readers_position(tmp_path: Path) -> None:
    log = tmp_path / "vtc.jsonl"
    log.write_text(format_entries("a", "b"))
    async with run_page(log) as pilot:
        with log.open("a") as file:
            file.write(format_entries("c") + format_entries("d")[:20])
        assert "3 exchanges" in (await update_screen(pilot))[0]
        assert get_selected_index(pilot) == 2
        await pilot.press("k")
        with log.open("a") as file:
            file.write(format_entries("d")[20:])
        assert "4 exchanges" in (await update_screen(pilot))[0]
        assert get_selected_index(pilot) == 1
        log.rename(tmp_path / "old")
        assert "4 exchanges" in (await update_screen(pilot))[0]
        log.write_text(format_entries("e"))
        assert "5 exchanges" in (await update_screen(pilot))[0]
        log.write_text("")
        await update_screen(pilot)
        log.write_text(format_entries("f"))
        assert "6 exchanges" in (await update_screen(pilot))[0]
        assert [row.split()[3] for row in read_screen(pilot)[2:8]] == [*"abcdef"]


async def test_the_last_thousand_are_listed_and_one_that_is_read_stays_chosen(tmp_path: Path) -> None:
    log = tmp_path / "vtc.jsonl"
    log.write_text(format_entries(*map(str, range(1005))))
    async with run_page(log) as pilot:
        await pilot.press("g")
        assert "1005 exchanges" in read_screen(pilot)[0]
        assert read_screen(pilot)[2].split()[3] == "5"
        await pilot.press("j", "j", "j")
        with log.open("a") as file:
            file.write(format_entries("new"))
        await update_screen(pilot)
        assert get_selected_index(pilot) == 2
        await pilot.press("enter")
        assert " · 8 · " in "".join(await update_screen(pilot))


async def test_a_log_of_months_is_read_from_its_end(tmp_path: Path) -> None:
    log = tmp_path / "vtc.jsonl"
    log.write_text(format_entries("old") + format_entries("m" * 1000) * 5000 + format_entries("new"))
    async with run_page(log) as pilot:
        await pilot.press("G")
        text = await update_screen(pilot)
        assert "invalid" not in text[0]
        assert text[-2].split()[3] == "new"


async def test_other_lines_in_the_log_are_counted_and_not_interpreted(tmp_path: Path) -> None:
    log = tmp_path / "vtc.jsonl"
    faulty = ["[1]", "x", '{"time": 1, "outcome": ""}', json.dumps({**ENTRY, "calls": [1]}), "[" * 10_000]
    log.write_text("\n".join(faulty) + "\n" + format_entries("\x1b]0;[bold]x"))
    async with run_page(log) as pilot:
        assert read_screen(pilot)[0].startswith(" 5 invalid lines, 1 exchange, ")
        assert "\\x1b]0;[bold]x" in read_screen(pilot)[2]
        log.unlink()
        log.mkdir()
        assert (await update_screen(pilot))[0].startswith(" Is a directory: ")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["tail", *arguments])


def test_unreadable_log_is_reported_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "vtc.jsonl"
    for arguments, status, words in (
        ([str(log)], 2, f"{log}: no such file; `vtc run --log {log}` creates it"),
        (["http://127.0.0.1:9"], 1, "nothing answers at http://127.0.0.1:9 ("),
    ):
        result = run(*arguments)
        assert (result.exit_code, words in result.output) == (status, True)
    log.touch()
    assert (run(str(log)).exit_code, "this needs a terminal" in run(str(log)).output) == (2, True)
    for name in [name for name in sys.modules if name.startswith(("textual", "vtc.cli.terminal"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "textual", None)
    result = run(str(log))
    assert (result.exit_code, result.output.splitlines()[-1]) == (
        2,
        f"Error: this needs the package textual: {sys.executable} -m pip install textual",
    )


async def test_running_vtc_reports_the_place_of_its_log(
    start: Start, confdir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a VTC that proves by the key in the folder of certificates that it is this user's."""
    monkeypatch.chdir(tmp_path)
    log = tmp_path / "vtc.jsonl"
    lab = await start(chat.make_stream("Hi"), vtc_log=str(log))
    result = await asyncio.to_thread(run, lab.proxy.url)
    assert (result.exit_code, f"names {log} as its log, but it does not prove that it is" in result.output) == (1, True)
    (tmp_path / "vtc.yaml").write_text(f"options: {{confdir: {confdir}}}")
    result = await asyncio.to_thread(run, lab.proxy.url)
    assert f"this needs a terminal; programs can parse {log}" in result.output
    lab = await start(chat.make_stream("Hi"))
    result = await asyncio.to_thread(run, lab.proxy.url)
    assert (result.exit_code, "`vtc run --log FILE`" in result.output) == (1, True)
    result = await asyncio.to_thread(run, lab.upstream.url)
    assert (result.exit_code, "no VTC in front of a model server answers" in result.output) == (1, True)


async def test_a_call_that_was_not_read_becomes_a_dialect_when_a_key_is_pressed(tmp_path: Path) -> None:
    log, file = tmp_path / "vtc.jsonl", tmp_path / "lab-model.yaml"
    log.write_text(
        json.dumps({**ENTRY, "id": "5f0c1ab2-9d3e", "port": 9000, "calls": [], "unread": True})
        + "\n"
        + format_entries("m")
    )
    text, tools = 'I look.\x1b\n@@read\n{"filePath": "note.txt"}\n@@end', {"read": {"type": "object"}}
    case = Case(name="lab-model 5f0c1ab2", text=text, tools=tools)
    asked: list[str] = []

    def draft(id_: str, port: int) -> DraftFile:
        asked.append(f"{id_} at {port}")
        return DraftFile.of(case, [tmp_path], ())

    async with run_page(log, draft) as pilot:
        await pilot.press("enter", "d", "q", "k", "enter")
        assert asked == []
        assert "make a dialect of this" in (await update_screen(pilot))[-1]
        await pilot.press("d")
        await pilot.pause()
        assert asked == ["5f0c1ab2-9d3e at 9000"]
        assert read_screen(pilot)[0] == ' the draft reads read {"filePath":"note.txt"}'
        assert not file.exists()
        file.write_text("mine")
        await pilot.press("w")
        assert (await update_screen(pilot))[0].startswith(" nothing was written: File exists")
        assert file.read_text() == "mine"
        await pilot.press("q", "d")
        await pilot.pause()
        await pilot.press("w")
        assert (await update_screen(pilot))[0].startswith(" written:")
        assert yaml.safe_load((tmp_path / "lab-model-2.yaml").read_text("utf-8"))["call"] == "@@{name}\n{args}\n@@end"
