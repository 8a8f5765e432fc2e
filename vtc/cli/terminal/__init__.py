"""The page in a terminal, by Textual: exchanges as they end, each with what VTC did. Only `vtc tail` and `vtc run --ui`
import it: Textual is an extra, and takes a while to load.
"""

from vtc.cli.terminal.app import TerminalPage
from vtc.cli.terminal.log_tail import LogTail
from vtc.proxy.draft_file import DraftFile

__all__ = ["DraftFile", "LogTail", "TerminalPage"]
