"""mitmweb in a real browser: the list of flows, their panes, options and the command bar.

The tests need Chromium (Debian's `chromium`), and are skipped without it. Screenshots are written to the directory in
the environment variable VTC_SCREENSHOTS, if it is set; the screenshots in the documentation were made this way.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import sys
from asyncio.subprocess import PIPE, STDOUT, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Literal

import httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, async_playwright, expect

from tests.apis import chat
from tests.e2e.conftest import PATH, PATIENCE
from tests.e2e.upstream import JSON, Reply, Seen, serving
from tests.proxy.captures import save_flows

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here (on Debian: apt-get install chromium)"),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.rest,  # a browser: ten seconds of a processor
]

CALL = chat.DIALECTS["qwen3-coder"]("read", {"filePath": "note.txt"})
REPLIES = {
    "rewritten": [
        chat.chunk({"reasoning_content": "The file must be read first."}),
        *chat.make_text_chunks("I look.\n\n", CALL),
    ],
    "repaired": chat.make_text_chunks(
        chat.DIALECTS["hermes"]("read", {"filePath": "note.txt"}).removesuffix("</tool_call>")
    ),
    "refused": chat.make_text_chunks(CALL.replace("read", "sh.rm")),
    "again": chat.make_text_chunks(CALL),
    "unread": chat.make_text_chunks('I look.\n@@read\n{"filePath": "note.txt"}\n@@end'),
}
COMMENTS = {
    "rewritten": "read, qwen3-coder -> tool_calls, 3 tools -> qwen3-coder prompt",
    "repaired": "1 repaired (missing-closer)",
    "refused": "1 left as text (no tool 'sh.rm' is offered",
}


async def shoot(page: Page, name: str) -> None:
    if directory := os.environ.get("VTC_SCREENSHOTS"):
        await page.screenshot(path=Path(directory) / f"{name}.png")


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
        """The pane of the open flow."""
        return self.page.locator(".flow-detail section").first

    async def open(self, what: str) -> None:
        await self.page.get_by_text(COMMENTS[what]).first.click()

    async def tab(self, name: str) -> str:
        """Return the text of a tab of the open flow."""
        await self.page.locator(".flow-detail .nav-tabs a", has_text=name).click()
        await expect(self.pane).to_contain_text("View:")
        await expect(self.pane).not_to_contain_text("Loading")
        return await self.pane.inner_text()


@dataclass(frozen=True, slots=True)
class Exchanges:
    """The page `/vtc`, open in a browser."""

    page: Page
    client: httpx.AsyncClient

    @property
    def rows(self) -> Locator:
        """The exchanges in the list."""
        return self.page.locator("#exchanges tbody tr:not(.none)")

    def chip(self, word: str) -> Locator:
        """Return the link that selects an outcome."""
        return self.page.locator("#outcomes a", has_text=word)


RELEASED = asyncio.Event()
"""Set when the reply "slow" may end."""


async def slow() -> AsyncIterator[bytes]:
    yield chat.ROLE + chat.make_text_chunks("I look.\n")[0]
    await RELEASED.wait()
    yield b"".join([*chat.make_text_chunks(CALL), chat.STOP, chat.DONE])


def answer(seen: Seen) -> Reply:
    """Return the reply that the request asks for, or 404 for the list of models, which `vtc run` requests."""
    if seen.method == "GET":
        return Reply([b"{}"], JSON, status=404)
    if not seen.json:  # `vtc run` probes the server for its APIs
        return Reply([b"{}"], JSON, 400, framing="length")
    if seen.json["user"] == "slow":
        return Reply(slow())
    return Reply([chat.ROLE, *REPLIES[seen.json["user"]], chat.STOP, chat.DONE])


async def ask(client: httpx.AsyncClient, user: str, agent: str = "OpenAI/Python 2.0", **fields: str) -> httpx.Response:
    """Send a request; `user` selects the reply, and `agent` is the user agent."""
    body = chat.request("What does note.txt say?", stream=True, user=user, **fields)
    return await client.post(PATH, json=body, headers={"user-agent": agent})


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@asynccontextmanager
async def running(upstream: str, confdir: Path) -> AsyncIterator[tuple[str, str, Process]]:
    """Run `vtc run --web`; yield the address of the proxy, the URL of the page with its token, and the process."""
    arguments = ["run", "--web", upstream, "--port", "0", "--tools", "prompt", "--dialect", "qwen3-coder", "--"]
    (confdir / "profiles").mkdir()
    arguments[2:2] = ["--profiles", str(confdir / "profiles")]
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
        yield found["proxy"], found["page"], process
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
        await draining


@dataclass(frozen=True, slots=True)
class Started:
    """mitmweb after an exchange of each kind."""

    browser: Browser
    client: httpx.AsyncClient
    address: str
    token: str
    process: Process
    profiles: Path
    """The user's profile directory."""

    @asynccontextmanager
    async def open_page(self, path: str, width: int = 1500) -> AsyncIterator[Page]:
        """Open a page of mitmweb."""
        context = await self.browser.new_context(viewport={"width": width, "height": 950})
        context.set_default_timeout(PATIENCE * 1000)
        page = await context.new_page()
        await page.goto(f"{self.address}{path}?{self.token}")
        yield page
        await context.close()


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def started(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Started]:
    """Start a browser, mitmweb and a client of its proxy, once for all tests because they start slowly."""
    async with (
        serving(answer) as upstream,
        running(upstream.url, folder := tmp_path_factory.mktemp("mitmproxy")) as (proxy, url, process),
        httpx.AsyncClient(base_url=proxy, trust_env=False, verify=False, timeout=PATIENCE) as client,
        async_playwright() as playwright,
    ):
        found = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        try:
            for what in ("rewritten", "repaired", "refused"):
                await ask(client, what)
            address, _, token = url.partition("/?")
            yield Started(found, client, address, token, process, folder / "profiles")
        finally:
            await found.close()


@pytest_asyncio.fixture(loop_scope="module")
async def mitmweb(started: Started) -> AsyncIterator[Mitmweb]:
    """Open a separate page for each test."""
    async with started.open_page("/") as page:
        yield Mitmweb(page, started.client)


@pytest_asyncio.fixture(loop_scope="module")
async def exchanges(started: Started) -> AsyncIterator[Exchanges]:
    """Open the page `/vtc` and wait until it receives updates."""
    async with started.open_page("/vtc", 1300) as page:
        yield Exchanges(page, started.client)


async def test_list_shows_actions_and_can_be_searched(mitmweb: Mitmweb) -> None:
    for comment in COMMENTS.values():
        await expect(mitmweb.page.get_by_text(comment).first).to_be_visible()
    for comment in await mitmweb.rows.locator("td.col-comment").all():
        assert (await comment.inner_text()).startswith("vtc: lab-model: ")
        width, side, apart = await comment.evaluate(
            "cell => [cell.clientWidth, ...['textAlign', 'paddingRight'].map(name => getComputedStyle(cell)[name])]"
        )
        assert width > 600  # of 1500; about a hundred characters
        assert (side, float(apart.removesuffix("px")) >= 10) == ("left", True)
    await shoot(mitmweb.page, "mitmweb-list")
    await mitmweb.page.get_by_placeholder("Search").fill("~marker warning")
    await expect(mitmweb.rows).to_have_count(1)
    await expect(mitmweb.rows).to_contain_text("left as text")
    await mitmweb.page.get_by_placeholder("Search").fill("~comment ^vtc")
    await expect(mitmweb.page.get_by_text(COMMENTS["rewritten"]).first).to_be_visible()


async def test_reply_is_shown_with_its_content(mitmweb: Mitmweb) -> None:
    await mitmweb.open("rewritten")
    await expect(mitmweb.page.locator("th.col-time")).to_be_in_viewport(ratio=1)  # next to the comment
    text = await mitmweb.tab("Response")
    before, after = text.split("[assistant, as the model wrote it]")[1].split("[assistant, as the client received it]")
    assert '(thought: "The file must be read first.", 28 characters)' in before
    assert "- <parameter=filePath>\n- note.txt\n- </parameter>" in before
    assert "\n  I look.\n" in before
    assert re.search(r"\+ -> read +call_[0-9a-f]{24}\n\+ +filePath: note.txt\n\+ finish_reason: tool_calls", after)
    assert "Why" in text
    assert "time in VTC" in text
    await shoot(mitmweb.page, "mitmweb-response")


async def test_the_raw_stream_is_one_click_away(mitmweb: Mitmweb) -> None:
    await mitmweb.open("rewritten")
    await mitmweb.tab("Response")
    await mitmweb.page.get_by_text("View: auto").click()
    await mitmweb.page.locator("ul.dropdown-menu:visible a", has_text=re.compile("^ ?raw$")).click()
    await expect(mitmweb.pane).to_contain_text('data: {"id"')


@pytest.mark.parametrize(
    ("what", "reason"),
    [("repaired", "repaired: missing-closer"), ("refused", "left as text: sh.rm, qwen3-coder: no tool 'sh.rm'")],
)
async def test_each_repair_and_refusal_has_its_reason(what: str, reason: str, mitmweb: Mitmweb) -> None:
    await mitmweb.open(what)
    assert reason in await mitmweb.tab("Response")
    await shoot(mitmweb.page, f"mitmweb-{what}")


async def test_request_is_shown_as_received_and_as_sent(mitmweb: Mitmweb) -> None:
    await mitmweb.open("rewritten")
    text = await mitmweb.tab("Request")
    assert "Changes of the request\n  3 tools -> qwen3-coder prompt" in text
    assert "[system, as the model was given it]\n+ # Tools" in text
    assert "[tools, as the client sent it]\n- read(filePath): Does read." in text
    await shoot(mitmweb.page, "mitmweb-request")


async def test_options_are_edited_with_their_help(mitmweb: Mitmweb) -> None:
    await mitmweb.page.get_by_role("link", name="Options").click()
    await mitmweb.page.get_by_text("Edit Options").click()
    modal = mitmweb.page.locator(".modal-content")
    await expect(modal).to_contain_text("change nothing and report what would have been done")
    mode = modal.locator("select").filter(has_text="observe")
    await mode.scroll_into_view_if_needed()
    await mode.select_option("observe")
    await shoot(mitmweb.page, "mitmweb-options")
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
    await expect(result).to_contain_text("1 left as text, 0 unread, 0 errors in VTC")
    await bar.fill("vtc.explain '~marker wrench'")
    await bar.press("Enter")
    await expect(result).to_contain_text("1 exchange: read it at ")
    await shoot(mitmweb.page, "mitmweb-command")
    (address,) = re.findall(r"http://\S+/vtc/said", await result.inner_text())
    await mitmweb.page.goto(address)
    await expect(mitmweb.page.locator("pre")).to_contain_text(re.compile(r"\n +repaired: missing-closer\n"))


async def test_the_page_shows_exchanges_as_they_happen(exchanges: Exchanges) -> None:
    page = exchanges.page
    lines: list[str] = []
    page.on("console", lambda message: lines.append(message.text))
    page.on("pageerror", lambda error: lines.append(str(error)))
    async with page.expect_websocket():
        await page.reload()
    await expect(page.locator("#by-dialect")).to_contain_text("qwen3-coder")
    before = await exchanges.rows.count()
    await exchanges.rows.nth(1).get_by_role("link", name="flow").focus()
    at = await page.evaluate("document.activeElement.href")
    await ask(exchanges.client, "again")
    await expect(exchanges.rows).to_have_count(before + 1)  # without reloading
    await expect(exchanges.rows.first.locator(".badge")).to_have_text("✓rewritten")
    await expect(exchanges.chip("all")).to_contain_text(str(before + 1))
    assert await page.evaluate("document.activeElement.href") == at  # the keyboard focus has not moved
    assert lines == []  # neither an error nor a violation of mitmweb's Content-Security-Policy


async def test_an_exchange_is_shown_side_by_side_and_leads_to_its_flow(exchanges: Exchanges) -> None:
    page = exchanges.page
    await page.get_by_role("link", name=COMMENTS["rewritten"]).last.click()
    await expect(page.locator("td.came.changed", has_text="<function=read>")).to_have_count(1)
    await expect(page.locator("td.went.changed", has_text="-> read")).to_have_count(1)
    await expect(page.locator("td.same", has_text="I look.")).to_have_count(1)
    await shoot(page, "mitmweb-page")
    await page.get_by_role("link", name="this flow in mitmweb").click()
    await expect(Mitmweb(page, exchanges.client).pane).to_contain_text("What VTC did")


async def test_an_exchange_under_way_is_shown_to_its_end(exchanges: Exchanges) -> None:
    page = exchanges.page
    asking = asyncio.create_task(ask(exchanges.client, "slow"))
    await expect(exchanges.rows.first.locator(".badge")).to_have_text("…under way")
    async with page.expect_websocket() as listening:
        await exchanges.rows.first.locator(".happened a").click()
    await expect(page.locator("h1")).to_contain_text("under way")
    socket = await listening.value
    async with socket.expect_event("close"):  # the page closes its connection
        RELEASED.set()
        await asking
    await expect(page.locator("h1")).to_contain_text("rewritten")
    await expect(page.locator("td.went.changed", has_text="-> read")).to_have_count(1)


async def test_exchanges_are_chosen_with_the_keyboard(exchanges: Exchanges) -> None:
    page = exchanges.page
    assert page.url.endswith("/vtc")  # without the token that it was opened with
    await ask(exchanges.client, "again", model="other-model")
    select = page.locator("select[name=model]")
    await expect(select.locator("option")).to_contain_text(["all", "lab-model", "other-model"])
    await select.focus()
    await page.keyboard.press("o")
    await expect(exchanges.rows.locator(".model", has_text="lab-model")).to_have_count(0)
    await expect(exchanges.rows.first.locator(".model")).to_have_text("other-model")
    assert await page.evaluate("document.activeElement.name") == "model"
    assert page.url.endswith("/vtc?model=other-model")
    await page.keyboard.press("Home")
    await exchanges.chip("left as text").focus()
    await page.keyboard.press("Enter")
    await expect(exchanges.chip("left as text")).to_have_attribute("aria-current", "true")
    await expect(exchanges.rows.locator(".badge")).to_have_text(["△left as text"])
    await expect(exchanges.rows).to_contain_text("no tool 'sh.rm' is offered")


async def test_the_page_fits_and_can_be_read(exchanges: Exchanges) -> None:
    page, before = exchanges.page, await exchanges.rows.count()
    for what, agent, model in SESSION:
        await ask(exchanges.client, what, agent, model=model)
    await expect(exchanges.rows).to_have_count(before + len(SESSION))
    for shown in ("list", "one"):
        if shown == "one":
            await exchanges.rows.first.locator(".happened a").click()
        for scheme, width in product(SCHEMES, (1300, 360)):
            await page.emulate_media(color_scheme=scheme)
            await page.set_viewport_size({"width": width, "height": 800})
            assert await page.evaluate("document.documentElement.scrollWidth") == width
            assert await page.evaluate(TOO_FAINT) == []
            await shoot(page, f"page-{shown}-{scheme}-{width}")


AGENTS = {"codex_cli_rs/0.50.0": "Qwen3-Coder-30B-A3B", "opencode/1.0": "GLM-4.5-Air"}
SESSION = [
    (what, *one) for what in ("again", "rewritten", "repaired", "again", "refused") for one in AGENTS.items()
] * 2
"""Exchanges for a screenshot: reply, agent and model of each."""
SCHEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")
TOO_FAINT = """() => {
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const light = (color) => parse(color).slice(0, 3)
    .map((part) => part / 255).map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4)
    .reduce((sum, part, index) => sum + part * [0.2126, 0.7152, 0.0722][index], 0);
  const ground = (one) => {
    const color = getComputedStyle(one).backgroundColor;
    return parse(color)[3] === 0 ? (one.parentElement ? ground(one.parentElement) : "rgb(255, 255, 255)") : color;
  };
  const spoken = (one) => [...one.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  return [...document.querySelectorAll("body *")].filter((one) => spoken(one) && one.checkVisibility())
    .filter((one) => !one.closest("select, svg"))
    .map((one) => [one, [light(getComputedStyle(one).color), light(ground(one))].sort((a, b) => b - a)])
    .filter(([, [more, less]]) => (more + 0.05) / (less + 0.05) < 4.5).map(([one]) => one.outerHTML);
}"""
"""Texts whose contrast is lower than WCAG 2 requires for level AA, 4.5 to 1."""


async def test_the_page_is_behind_mitmwebs_token(started: Started) -> None:
    async with httpx.AsyncClient(base_url=started.address, trust_env=False, verify=False) as stranger:
        for path in ("/vtc", "/vtc/said", "/vtc/page.js", "/vtc/00000000-0000-0000-0000-000000000000"):
            answer = await stranger.get(path)
            assert answer.status_code == 403
            assert "token" in answer.text
        assert (await stranger.get(f"/vtc/0-0?{started.token}")).status_code == 404
        page = await stranger.get(f"/vtc?{started.token}")
        assert page.headers["cache-control"] == "no-store"
        assert started.token.partition("=")[2] not in page.text


async def test_a_call_that_was_not_read_becomes_a_dialect_when_the_button_is_pressed(
    exchanges: Exchanges, started: Started
) -> None:
    """Late in the file, because the dialect exists afterwards."""
    page = exchanges.page
    await ask(exchanges.client, "unread")
    await page.get_by_role("link", name="a possible call was not read").first.click()
    await page.get_by_role("link", name="make a dialect of this").click()
    await expect(page.locator("#draft")).to_contain_text('the draft reads read {"filePath":"note.txt"}')
    await expect(page.locator("#draft")).to_contain_text("kind:")
    await shoot(page, "mitmweb-dialect")
    file = started.profiles / "lab-model.yaml"
    assert not file.exists()
    async with httpx.AsyncClient(base_url=started.address, trust_env=False, verify=False) as stranger:
        pressed = {"name": file.name}
        path = page.url.removeprefix(started.address)
        assert (await stranger.post(path, data=pressed)).status_code == 403
        assert (await stranger.post(f"{path}?{started.token}", data=pressed)).status_code == 403
    assert not file.exists()
    await page.get_by_role("button", name=f"write {file}").click()
    await expect(page.get_by_role("status")).to_contain_text(f"written: {file}")
    text = file.read_text()
    assert text.startswith("# A draft by `vtc new-dialect`")
    await page.go_back()
    await page.locator("input[name=name]").evaluate("(input) => (input.value = 'lab-model.yaml')")
    await page.get_by_role("button").click()
    await expect(page.get_by_role("status")).to_contain_text("nothing was written")
    assert [file.name for file in started.profiles.iterdir()] == ["lab-model.yaml"]
    assert file.read_text() == text


async def test_a_flow_from_a_file_is_shown_too(mitmweb: Mitmweb, tmp_path: Path) -> None:
    """VTC never saw the flow. Late in the file, because mitmweb forgets its own flows when it opens a file."""
    path = await asyncio.to_thread(save_flows, tmp_path, "Read from a file.", seen=False)
    await mitmweb.page.get_by_role("link", name="File").click()
    async with mitmweb.page.expect_file_chooser() as chooser:
        await mitmweb.page.get_by_text("Open...").click()
    await (await chooser.value).set_files(path)
    await expect(mitmweb.rows).to_have_count(1)
    await mitmweb.rows.click()
    assert "[assistant]\n  Read from a file.\n  finish_reason: stop" in await mitmweb.tab("Response")


async def test_mitmweb_ends_with_a_page_open(exchanges: Exchanges, started: Started) -> None:
    """Last in the file, because mitmweb has ended afterwards."""
    feed = exchanges.page.locator("#feed")
    async with exchanges.page.expect_websocket():
        await exchanges.page.reload()
    await expect(feed).to_be_hidden()
    started.process.terminate()
    async with asyncio.timeout(PATIENCE):
        await started.process.wait()
    await expect(feed).to_contain_text("not connected")
