"""The screens of the page in the terminal: the list of exchanges, one exchange, a draft of a dialect, and help."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import ClassVar

from rich.cells import set_cell_size
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Footer, OptionList, Static
from textual.widgets.option_list import Option

from vtc.cli.terminal.log_tail import LoggedExchange, LogTail
from vtc.profiles.document import format_count
from vtc.proxy.launch import PORT
from vtc.proxy.showing.draft_file import DraftFile
from vtc.proxy.showing.stats import CallCounts
from vtc.reporting import OUTCOMES, UNDER_WAY, list_sections

MAX_LISTED_EXCHANGES = 1000
"""Maximum number of listed exchanges; older ones are dropped."""
LOG_POLL_SECONDS = 0.5
"""Seconds between two reads of the log."""
TONE_STYLES = {"bad": "bold $text-error", "warn": "$text-warning", "mended": "$text-primary", "good": "$text-success"}
"""Style by the tone of an outcome; outcomes with another tone are dim."""
TIME_WIDTH, OUTCOME_WIDTH, MODEL_WIDTH = len("01:02:03"), max(len(look.word) for look in OUTCOMES.values()) + 2, 16
"""Width in terminal columns of a time, an outcome and a model's name; the summary has the rest of the line."""

KEY_HELP = """\
j k  arrows     down, up
g G  Home End   first, last
Space  PgDn     page down
Enter           open an exchange
q  Esc          back; q in the list quits
?               this help

The newest exchange is at the end. While it is selected, the list scrolls to new ones.

"""


def format_columns(*texts: str) -> str:
    """Format the columns before the summary."""
    widths = TIME_WIDTH, OUTCOME_WIDTH, MODEL_WIDTH
    return "".join(f"{set_cell_size(text, width)}  " for text, width in zip(texts, widths, strict=True))


def format_outcome(exchange: LoggedExchange) -> str:
    """Format an outcome as its sign and its word."""
    return f"{exchange.look.sign} {exchange.look.word}"


def format_row(exchange: LoggedExchange) -> Content:
    """Format an exchange as a row of the list."""
    columns = format_columns(f"{exchange.at:%H:%M:%S}", format_outcome(exchange), exchange.get_text("asked"))
    return Content.styled(f"{columns}{exchange.summary}", TONE_STYLES.get(exchange.look.tone, "dim"))


class ExchangeList(OptionList):
    """List of exchanges, the newest at the end; scrolls to new exchanges while the newest is selected."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "cursor_down", "down", show=False),
        Binding("k", "cursor_up", "up", show=False),
        Binding("g", "first", "first", show=False),
        Binding("G", "last", "last", show=False),
        Binding("space", "page_down", "page down", show=False),
        Binding("enter", "select", "open"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.exchanges: deque[LoggedExchange] = deque()

    def extend(self, exchanges: list[LoggedExchange]) -> None:
        """Append exchanges; drop the oldest ones beyond `MAX_LISTED_EXCHANGES`."""
        selected = self.highlighted
        is_following = selected in (None, len(self.exchanges) - 1)
        self.exchanges += exchanges
        dropped = max(0, len(self.exchanges) - MAX_LISTED_EXCHANGES)
        for _ in range(dropped):
            self.exchanges.popleft()
        if dropped:
            self.set_options([Option(format_row(exchange)) for exchange in self.exchanges])
        else:
            self.add_options([Option(format_row(exchange)) for exchange in exchanges])
        if is_following or selected is None:
            self.highlighted = len(self.exchanges) - 1
        else:
            self.highlighted = max(0, selected - dropped)


class PagerScreen(Screen[None]):
    """A text that the user can scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,escape", "app.pop_screen", "back"),
        Binding("j", "scroll('down')", "down", show=False),
        Binding("k", "scroll('up')", "up", show=False),
        Binding("g", "scroll('home')", "first", show=False),
        Binding("G", "scroll('end')", "last", show=False),
        Binding("space", "scroll('page_down')", "page down", show=False),
    ]

    def __init__(self, text: Content) -> None:
        super().__init__()
        self._text = text

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text)
        yield Footer()

    def action_scroll(self, to: str) -> None:
        getattr(self.query_one(VerticalScroll), f"scroll_{to}")(animate=False)


class ExchangeScreen(PagerScreen):
    """One exchange: the actions of VTC, the changes of the request, and figures."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("d", "draft", "make a dialect of this")]

    def __init__(self, exchange: LoggedExchange) -> None:
        entry = exchange.entry
        url = f"{exchange.get_text('host')}{exchange.get_text('path')}"
        status = exchange.get_text("status")
        facts = [
            f"{exchange.at:%Y-%m-%d %H:%M:%S}",
            exchange.get_text("asked"),
            exchange.get_text("client"),
            url,
            status,
        ]
        title = f"{format_outcome(exchange)}  {exchange.summary}"
        parts = [
            Content.styled(title, TONE_STYLES.get(exchange.look.tone, "bold")),
            Content(" · ".join(filter(None, facts))),
        ]
        for heading, lines in list_sections(entry):
            parts += [Content(), Content.styled(heading, "bold"), *(Content(f"  {entry_line}") for entry_line in lines)]
        super().__init__(Content("\n").join(parts))
        self._exchange = exchange

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Offer a draft only for a call that was not read."""
        return action != "draft" or bool(self._exchange.entry.get("unread"))

    async def action_draft(self) -> None:
        page = self.app
        assert isinstance(page, TerminalPage)
        try:
            port = self._exchange.entry.get("port")
            draft = await asyncio.to_thread(
                page.draft_dialect, self._exchange.get_text("id"), port if type(port) is int else PORT
            )
        except (ValueError, OSError) as error:
            await page.push_screen(PagerScreen(Content(f"No dialect can be drafted: {error}")))
        else:
            await page.push_screen(DraftScreen(draft))


class DraftScreen(PagerScreen):
    """The draft of a dialect, the calls that it parses, and the path to which it can be written."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("w", "write", "write it")]

    def __init__(self, draft: DraftFile) -> None:
        advice = f"w writes {draft.path}"
        if draft.path is None:
            advice = "to write it from here, name your folder of profiles with --profiles" if draft.calls else ""
        super().__init__(Content("\n".join([*draft.describe(), advice, "", draft.text])))
        self._draft = draft

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        return action != "write" or self._draft.path is not None

    def action_write(self) -> None:
        try:
            self._draft.write()
            message = f"written: {self._draft.path}. A VTC with this folder loads it within a second"
        except OSError as error:
            message = f"nothing was written: {error.strerror}: {self._draft.path}"
        self.app.switch_screen(PagerScreen(Content(message)))


class TerminalPage(App[None]):
    """Application that lists the exchanges of a log as they end."""

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    #total, #heads { height: 1; text-wrap: nowrap; text-overflow: ellipsis; padding: 0 1; }
    #total { background: $panel; }
    #heads { text-style: bold; }
    ExchangeList { height: 1fr; border: none; padding: 0 1; text-wrap: nowrap; text-overflow: ellipsis;
                   &:focus { border: none; } }
    VerticalScroll { padding: 0 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "quit", "quit"),
        Binding("ctrl+c", "quit", "quit", show=False, priority=True),
        Binding("question_mark", "help", "help", key_display="?"),
    ]

    def __init__(
        self, log: LogTail, draft: Callable[[str, int], DraftFile], is_over: Callable[[], bool] = lambda: False
    ) -> None:
        """Create the page; it quits when `is_over` returns True, for example because the VTC of the log has ended."""
        super().__init__()
        self._tail = log
        self._is_over = is_over
        self.draft_dialect = draft
        """Drafts a dialect from a reply, given the id of its flow and the port of its VTC; raises ValueError."""
        self._problem = ""

    def compose(self) -> ComposeResult:
        yield Static(id="total", markup=False)
        yield Static(format_columns("time", "outcome", "model") + "what happened", id="heads", markup=False)
        yield ExchangeList()
        yield Footer()

    def on_mount(self) -> None:
        self.poll_log()
        self.set_interval(LOG_POLL_SECONDS, self.poll_log)

    def on_unmount(self) -> None:
        self._tail.close()

    def poll_log(self) -> None:
        """Add the new lines of the log to the list."""
        if not (self.screen_stack and self.screen_stack[0].query("#total")):  # called once more while the page closes
            return
        if self._is_over():
            self.exit()
        try:
            exchanges, problem = self._tail.read(), ""
        except OSError as error:
            exchanges, problem = [], f"{error.strerror}: {self._tail.path}"
        if exchanges:
            self.screen_stack[0].query_one(ExchangeList).extend(exchanges)
        self.screen_stack[0].query_one("#total", Static).update(problem or self._format_total())

    def _format_total(self) -> str:
        figures, left_alone, faulty = self._tail.stats.total, self._tail.left_alone, self._tail.faulty
        parts = [
            format_count(faulty, "invalid line") if faulty else "",
            format_count(figures.exchanges + left_alone, "exchange")
            + (f" ({left_alone} of them left alone)" if left_alone else ""),
            f"{CallCounts.summarize(figures)}, {figures.unread} unread",
        ]
        return ", ".join(filter(None, parts))

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        exchange = self.screen_stack[0].query_one(ExchangeList).exchanges[event.option_index]
        self.push_screen(ExchangeScreen(exchange))

    def action_help(self) -> None:
        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen())


class HelpScreen(PagerScreen):
    """Help: the keys and the outcomes."""

    def __init__(self) -> None:
        outcomes = [
            Content.styled(f"{look.sign} {look.word}", TONE_STYLES.get(look.tone, "dim"))
            for outcome, look in OUTCOMES.items()
            if outcome != UNDER_WAY  # a log contains only finished exchanges
        ]
        super().__init__(Content("\n").join([Content(KEY_HELP), *outcomes]))
