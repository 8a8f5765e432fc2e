"""A page in the terminal that lists exchanges as they end, and shows the actions of VTC in each.

Only `vtc tail` and `vtc run --ui` import it, because Textual is an extra and takes long to load.
"""

from vtc.cli.terminal.app import TerminalPage
from vtc.cli.terminal.log_tail import LogTail
from vtc.proxy.showing.draft_file import DraftFile

__all__ = ["DraftFile", "LogTail", "TerminalPage"]
