"""Profiles read anew when an option changes, when a file of theirs is edited, or on command, while flows run.

What begins afterwards is planned with them; a flow on its way keeps the plan that it began with. A set that is not
usable is told once, and the last good one stays.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Protocol

from mitmproxy import ctx, exceptions

from vtc.profiles import loader
from vtc.profiles.memory import Memory
from vtc.profiles.planner import Planner
from vtc.proxy import options

logger = logging.getLogger(__name__)

WATCH_INTERVAL = 1.0
"""Seconds between two looks at the files; one takes about 1 ms."""


PROFILES_KEPT = "The profiles read before stay in use."


class ReloadableAddon(Protocol):
    planner: Planner | None
    memory: Memory | None

    def forget(self) -> None: ...


class Reloader:
    """Keeps `addon.planner` up to date; `addon.memory` is made anew with it."""

    name = "vtc-reload"

    def __init__(self, addon: ReloadableAddon) -> None:
        self._addon = addon
        self._seen: object = None
        self._task: asyncio.Task[None] | None = None

    def configure(self, updated: set[str]) -> None:
        if any(name.startswith("vtc_") for name in updated):
            self._load()

    def running(self) -> None:
        self._task = asyncio.create_task(self._watch())

    def done(self) -> None:
        if self._task:
            self._task.cancel()

    def reload(self) -> str:
        """Read the profiles again; says what there is now and what is no longer, or what is wrong."""
        before = self._addon.planner.profiles.sources if self._addon.planner else {}
        try:
            self._load()
        except exceptions.OptionsError as error:
            logger.error("%s\n%s", error, PROFILES_KEPT)
            return str(error)
        except Exception as error:  # a fault of ours does not end the watch, either
            logger.exception("vtc: the profiles cannot be read\n%s", PROFILES_KEPT)
            return f"vtc: the profiles cannot be read: {error}"
        assert self._addon.planner is not None
        profiles = self._addon.planner.profiles
        message = f"vtc: profiles read: {profiles.format_counts()}"
        if gone := [" ".join(key) for key in before if key not in profiles.sources]:
            message += f"; gone: {', '.join(gone)}"
        logger.log(logging.WARNING if gone else logging.INFO, message)
        return message

    def check_files(self) -> None:
        """Read the profiles again if a file has changed since they were read last."""
        if _signature() != self._seen:
            self.reload()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL)
            self.check_files()

    def _load(self) -> None:
        # First, so that an edit while they are read is seen at the next look.
        self._seen = _signature()
        self._addon.planner = options.build_planner(ctx.options)
        self._addon.memory = options.build_memory()
        self._addon.forget()


def _signature() -> object:
    """Return a value that differs when a profile was edited; the error where files cannot be read: it is told once."""
    try:
        return loader.signature(options.list_profile_directories(ctx.options))
    except (OSError, ValueError) as error:  # no path may hold the character NUL
        return str(error)
