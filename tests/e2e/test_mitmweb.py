"""What a person sees in mitmweb, in a real browser: the list of flows, their panes, options and the command bar.

Needs Chromium (Debian's `chromium`), and is skipped without. Screenshots go to the directory that the environment
variable VTC_SCREENSHOTS names, if it does; those of the docs were made so.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE
from tests.e2e.upstream import JSON, Reply, Seen, serving
from tests.proxy.test_replaying import saved

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (on Debian: apt-get install chromium)"),
    pytest.mark.asyncio(loop_scope="module"),
]

CALL = chat.DIALECTS["qwen3-coder"]("read", {"filePath": "note.txt"})
REPLIES = {
    "rewritten": [chat.chunk({"reasoning_content": "The file must be read first."}), *chat.said("I look.\n\n", CALL)],
    "repaired": chat.said(chat.DIALECTS["hermes"]("read", {"filePath": "note.txt"}).removesuffix("</tool_call>")),
    "refused": chat.said(CALL.replace("read", "sh.rm")),
    "again": chat.said(CALL),
}
COMMENTS = {
    "rewritten": "read, qwen3-coder -> tool_calls, 3 tools -> qwen3-coder prompt",
    "repaired": "1 repaired (missing-closer)",
    "refused": "1 left as text (no tool 'sh.rm' is offered",
}


@dataclass(frozen=True, slots=True)
class Mitmweb:
    """mitmweb after an exchange of each kind, open in a browser."""

    page: Page
    client: httpx.AsyncClient

    @property
    def rows(self) -> Locator:
        """The flows in the list."""
        return self.page.locator("table tbody tr", has_text="POST")

    @property
    def pane(self) -> Locator:
        """What is shown of the flow that is open."""
        return self.page.locator(".flow-detail section").first

    async def shot(self, name: str) -> None:
        if directory := os.environ.get("VTC_SCREENSHOTS"):
            await self.page.screenshot(path=Path(directory) / f"{name}.png")

    async def open(self, what: str) -> None:
        await self.page.get_by_text(COMMENTS[what]).first.click()

    async def tab(self, name: str) -> str:
        """The text of a tab of the flow that is open."""
        await self.page.locator(".flow-detail .nav-tabs a", has_text=name).click()
        await expect(self.pane).to_contain_text("View:")
        await expect(self.pane).not_to_contain_text("Loading")
        return await self.pane.inner_text()


def answer(seen: Seen) -> Reply:
    """The reply that the request asks for; none to the question for models, by which `vtc run` knows its server."""
    if seen.method == "GET":
        return Reply([b"{}"], JSON, status=404)
    if not seen.json:  # `vtc run` asks which APIs are spoken
        return Reply([b"{}"], JSON, 400, framing="length")
    return Reply([chat.ROLE, *REPLIES[seen.json["user"]], chat.STOP, chat.DONE])


async def ask(client: httpx.AsyncClient, user: str) -> httpx.Response:
    """An exchange; `user` is which reply is given."""
    body = chat.request("What does note.txt say?", stream=True, user=user)
    return await client.post(PATH, json=body, headers={"user-agent": "OpenAI/Python 2.0"})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(upstream: str, confdir: Path) -> AsyncIterator[tuple[str, str]]:
    """`vtc run --web`; gives the proxy's address and the page's, token and all."""
    arguments = ["run", "--web", upstream, "--port", "0", "--tools", "prompt", "--dialect", "qwen3-coder", "--"]
    arguments += ["--set", f"confdir={confdir}", "--no-web-open-browser", "--web-port", str(free_port())]
    command = [sys.executable, "-m", "vtc", *arguments]
    process = await asyncio.create_subprocess_exec(*command, stdout=PIPE, stderr=STDOUT)
    assert process.stdout is not None
    found: dict[str, str] = {}
    try:
        async with asyncio.timeout(3 * PATIENCE):
            while len(found) < 2:
                line = (await process.stdout.readline()).decode()
                assert line, "it ended before it listened"
                if page := re.search(r"Web server listening at (\S+)", line):
                    found["page"] = page[1]
                elif proxy := re.search(r"listening at (?:http://)?(\S+:\d+)", line):
                    found["proxy"] = f"http://{proxy[1]}"
        draining = asyncio.create_task(process.stdout.read())
        yield found["proxy"], found["page"]
    finally:
        process.terminate()
        await process.wait()
        await draining


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def browser(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Browser, str, httpx.AsyncClient]]:
    """A browser, mitmweb after an exchange of each kind, and a client of its proxy: once for all, they start slowly."""
    async with (
        serving(answer) as upstream,
        running(upstream.url, tmp_path_factory.mktemp("mitmproxy")) as (proxy, url),
        httpx.AsyncClient(base_url=proxy, trust_env=False, timeout=PATIENCE) as client,
        async_playwright() as playwright,
    ):
        found = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            for what in ("rewritten", "repaired", "refused"):
                await ask(client, what)
            yield found, url, client
        finally:
            await found.close()


@pytest_asyncio.fixture(loop_scope="module")
async def mitmweb(browser: tuple[Browser, str, httpx.AsyncClient]) -> AsyncIterator[Mitmweb]:
    """A page of its own for each test."""
    program, url, client = browser
    context = await program.new_context(viewport={"width": 1500, "height": 950})
    context.set_default_timeout(PATIENCE * 1000)
    page = await context.new_page()
    await page.goto(url)
    yield Mitmweb(page, client)
    await context.close()


async def test_the_list_shows_what_was_done_and_is_searched(mitmweb: Mitmweb) -> None:
    for comment in COMMENTS.values():
        await expect(mitmweb.page.get_by_text(comment).first).to_be_visible()
    for comment in await mitmweb.rows.locator("td.col-comment").all():
        assert await comment.evaluate("cell => cell.clientWidth") > 400  # of 1500; about sixty characters
    await mitmweb.shot("mitmweb-list")
    await mitmweb.page.get_by_placeholder("Search").fill("~marker warning")
    await expect(mitmweb.rows).to_have_count(1)
    await expect(mitmweb.rows).to_contain_text("left as text")
    await mitmweb.page.get_by_placeholder("Search").fill("~comment ^vtc")
    await expect(mitmweb.page.get_by_text(COMMENTS["rewritten"]).first).to_be_visible()


async def test_a_reply_is_shown_as_what_it_says(mitmweb: Mitmweb) -> None:
    await mitmweb.open("rewritten")
    text = await mitmweb.tab("Response")
    before, after = text.split("[assistant, as the model wrote it]")[1].split("[assistant, as the client received it]")
    assert '(thought: "The file must be read first.", 28 characters)' in before
    assert "- <parameter=filePath>\n- note.txt\n- </parameter>" in before
    assert "\n  I look.\n" in before
    assert re.search(r"\+ -> read +call_[0-9a-f]{24}\n\+ +filePath: note.txt\n\+ finish_reason: tool_calls", after)
    assert "Why" in text
    assert "time in VTC" in text
    await mitmweb.shot("mitmweb-response")


async def test_the_raw_stream_is_one_click_away(mitmweb: Mitmweb) -> None:
    await mitmweb.open("rewritten")
    await mitmweb.tab("Response")
    await mitmweb.page.get_by_text("View: auto").click()
    await mitmweb.page.locator("ul.dropdown-menu:visible a", has_text=re.compile("^ ?raw$")).click()
    await expect(mitmweb.pane).to_contain_text('data: {"id"')


@pytest.mark.parametrize(
    ("what", "said"),
    [("repaired", "repaired: missing-closer"), ("refused", "left as text: sh.rm, qwen3-coder: no tool 'sh.rm'")],
)
async def test_each_repair_and_refusal_has_its_reason(what: str, said: str, mitmweb: Mitmweb) -> None:
    await mitmweb.open(what)
    assert said in await mitmweb.tab("Response")
    await mitmweb.shot(f"mitmweb-{what}")


async def test_a_request_is_shown_as_it_came_and_as_it_went(mitmweb: Mitmweb) -> None:
    await mitmweb.open("rewritten")
    text = await mitmweb.tab("Request")
    assert "request: 3 tools -> qwen3-coder prompt" in text
    assert "[system, as the model was given it]\n+ # Tools" in text
    assert "[tools, as the client sent it]\n- read(filePath): Does read." in text
    await mitmweb.shot("mitmweb-request")


async def test_options_are_edited_with_their_help(mitmweb: Mitmweb) -> None:
    await mitmweb.page.get_by_role("link", name="Options").click()
    await mitmweb.page.get_by_text("Edit Options").click()
    modal = mitmweb.page.locator(".modal-content")
    await expect(modal).to_contain_text("change nothing and report what would have been done")
    mode = modal.locator("select").filter(has_text="observe")
    await mode.scroll_into_view_if_needed()
    await mode.select_option("observe")
    await mitmweb.shot("mitmweb-options")
    await expect(mode).to_have_value("observe")
    await ask(mitmweb.client, "again")
    await mode.select_option("rewrite")
    await expect(mode).to_have_value("rewrite")
    await expect(mitmweb.page.get_by_text("vtc (observing): ").first).to_be_attached()


async def test_commands_are_run_from_the_command_bar(mitmweb: Mitmweb) -> None:
    await mitmweb.page.get_by_role("link", name="Options").click()
    await mitmweb.page.get_by_text("Display Command Bar").click()
    bar = mitmweb.page.get_by_placeholder("Enter command")
    result = mitmweb.page.locator(".command-result")
    await bar.fill("vtc.stats")
    await bar.press("Enter")
    await expect(result).to_contain_text("1 left as text, 0 failed open")
    await bar.fill("vtc.explain '~marker wrench'")
    await bar.press("Enter")
    await expect(result).to_contain_text("1 exchange, to be read at ")
    await mitmweb.shot("mitmweb-command")
    (address,) = re.findall(r"http://\S+/vtc/said", await result.inner_text())
    await mitmweb.page.goto(address)
    await expect(mitmweb.page.locator("pre")).to_contain_text(re.compile(r"\n +repaired: missing-closer\n"))


async def test_the_page_shows_exchanges_as_they_happen(mitmweb: Mitmweb) -> None:
    page, address = mitmweb.page, mitmweb.page.url.partition("?")[0].partition("#")[0]
    await page.goto(f"{address}vtc")
    exchanges = page.locator("#exchanges tr", has=page.locator("td"))
    await expect(page.locator("#by-dialect")).to_contain_text("qwen3-coder")
    before = await exchanges.count()
    await ask(mitmweb.client, "again")
    await expect(exchanges).to_have_count(before + 1)  # by itself
    await page.get_by_role("link", name=COMMENTS["rewritten"]).last.click()
    changed = page.locator("td.came.changed", has_text="<function=read>")
    await expect(changed).to_have_count(1)
    await expect(page.locator("td.went.changed", has_text="-> read")).to_have_count(1)
    await expect(page.locator("td.came:not(.changed)", has_text="I look.")).to_have_count(1)
    await mitmweb.shot("mitmweb-page")


async def test_the_page_is_behind_mitmwebs_token(mitmweb: Mitmweb) -> None:
    address = mitmweb.page.url.partition("?")[0].partition("#")[0]
    async with httpx.AsyncClient(trust_env=False) as stranger:
        for path in ("vtc", "vtc/said", "vtc/00000000-0000-0000-0000-000000000000"):
            answer = await stranger.get(f"{address}{path}")
            assert answer.status_code == 403
            assert "token" in answer.text
    assert (await mitmweb.page.goto(f"{address}vtc/0-0")).status == 404  # type: ignore[union-attr]


async def test_a_flow_from_a_file_is_shown_too(mitmweb: Mitmweb, tmp_path: Path) -> None:
    """One that VTC never saw. The last test: mitmweb forgets its own flows when it opens a file."""
    path = await asyncio.to_thread(saved, tmp_path, "Read from a file.", seen=False)
    await mitmweb.page.get_by_role("link", name="File").click()
    async with mitmweb.page.expect_file_chooser() as chooser:
        await mitmweb.page.get_by_text("Open...").click()
    await (await chooser.value).set_files(path)
    await expect(mitmweb.rows).to_have_count(1)
    await mitmweb.rows.click()
    assert "[assistant]\n  Read from a file.\n  finish_reason: stop" in await mitmweb.tab("Response")
