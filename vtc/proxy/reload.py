"""Reload profiles when an option changes, when a file is edited, or on command, while flows are running.

Later exchanges are planned with the new profiles; a running exchange keeps its plan. Invalid profiles are reported
once, and the last valid ones stay in use.
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

WATCH_INTERVAL_SECONDS = 1.0
"""Seconds between two checks of the files; one takes about 1 ms."""


PROFILES_KEPT = "The previous profiles stay in use."


class ReloadableAddon(Protocol):
    planner: Planner | None
    memory: Memory | None

    def evict_patterns(self) -> None: ...


class Reloader:
    """Keeps `addon.planner` up to date, and replaces `addon.memory` with it."""

    name = "vtc-reload"

    def __init__(self, addon: ReloadableAddon) -> None:
        self._addon = addon
        self._loaded_signature: object = None
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
        """Reload the profiles; return the counts and the removed profiles, or the error."""
        before = self._addon.planner.profiles.sources if self._addon.planner else {}
        try:
            self._load()
        except exceptions.OptionsError as error:
            logger.error("%s\n%s", error, PROFILES_KEPT)
            return str(error)
        except Exception as error:  # a bug in VTC must not end the watch, either
            logger.exception("vtc: the profiles cannot be read\n%s", PROFILES_KEPT)
            return f"vtc: the profiles cannot be read: {error}"
        assert self._addon.planner is not None
        profiles = self._addon.planner.profiles
        message = f"vtc: profiles read: {profiles.format_counts()}"
        if removed := [" ".join(key) for key in before if key not in profiles.sources]:
            message += f"; removed: {', '.join(removed)}"
        logger.log(logging.WARNING if removed else logging.INFO, message)
        return message

    def check_files(self) -> None:
        """Reload the profiles if a file has changed since the last time."""
        if _compute_signature() != self._loaded_signature:
            self.reload()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(WATCH_INTERVAL_SECONDS)
            self.check_files()

    def _load(self) -> None:
        # Before loading, so that the next check notices an edit made meanwhile.
        self._loaded_signature = _compute_signature()
        self._addon.planner = options.build_planner(ctx.options)
        self._addon.memory = options.build_memory(self._addon.memory)
        self._addon.evict_patterns()


def _compute_signature() -> object:
    """Return a value that changes when a profile is edited; unreadable files yield the error, reported once."""
    try:
        return loader.signature(options.list_profile_directories(ctx.options))
    except (OSError, ValueError) as error:  # ValueError: a path with the character NUL
        return str(error)
