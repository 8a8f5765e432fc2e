"""Write a log of exchanges for programs: JSON Lines, one object per exchange, without any content of messages.

The file is opened for each line, so that it can be rotated while VTC runs.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mitmproxy import ctx, exceptions, http

from vtc.proxy import flows


def append_text(path: Path, text: str) -> None:
    """Append text to a file, which is created if missing; raises OSError, and then nothing was added.

    On a full disk half a line would also corrupt the next one.
    """
    data = text.encode()
    with path.open("ab", buffering=0) as file:
        before = os.fstat(file.fileno()).st_size
        try:
            while data:
                data = data[file.write(data) :]
        except OSError:
            with suppress(OSError):  # devices and pipes cannot be truncated
                file.truncate(before)
            raise


logger = logging.getLogger(__name__)

_OMITTED_KEYS = ("why",)
"""Keys of a report that are not logged."""
_MESSAGE_KEYS = ("excerpt", "detail", "before", "now")
"""Keys of texts in refusals, policies and changed prompts that quote messages; they are not logged."""
_PRESENCE_KEYS = ("unread",)
"""Keys of the model's text; only its presence is logged."""


class LogFile:
    """Writes to the file of the option `vtc_log`, if it is set."""

    name = "vtc-log"

    def __init__(self) -> None:
        self._path: Path | None = None
        self._failed = False

    def configure(self, updated: set[str]) -> None:
        if "vtc_log" not in updated:
            return
        path = Path(ctx.options.vtc_log).expanduser() if ctx.options.vtc_log else None
        if path:
            try:
                path.open("a").close()
            except OSError as error:
                raise exceptions.OptionsError(f"vtc_log: {path} cannot be written: {error.strerror}") from None
        self._path, self._failed = path, False

    def write(self, flow: http.HTTPFlow, report: Mapping[str, Any]) -> None:
        """Add a line; a failure is reported once."""
        if self._path is None:
            return
        line = json.dumps(make_entry(flow, report), ensure_ascii=False)
        try:
            append_text(self._path, f"{line}\n")
        except OSError as error:
            if not self._failed:
                logger.error(
                    "vtc: exchanges are not logged because %s cannot be written: %s", self._path, error.strerror
                )
            self._failed = True
        else:
            self._failed = False


def make_entry(flow: http.HTTPFlow, report: Mapping[str, Any]) -> dict[str, Any]:
    """Make the log entry of an exchange; `report` is already scrubbed."""
    line = {key: _drop_personal(value) for key, value in report.items() if key not in _OMITTED_KEYS}
    return {
        "time": datetime.fromtimestamp(flow.request.timestamp_start, UTC).isoformat(timespec="milliseconds"),
        "id": flow.id,
        "port": flow.client_conn.sockname[1],
        "host": flow.request.pretty_host,
        "path": flows.format_path(flow),
        "status": flow.response.status_code if flow.response else None,
        "outcome": report["outcome"],
        **line,
        **{key: bool(report[key]) for key in _PRESENCE_KEYS if key in report},
    }


def _drop_personal(value: Any) -> Any:
    if isinstance(value, list):
        return [_drop_personal(entry) if isinstance(entry, dict) else entry for entry in value]
    return {key: item for key, item in value.items() if key not in _MESSAGE_KEYS} if isinstance(value, dict) else value
