"""Asks within limits: so many questions, so much time in all, and Ctrl-C ends the asking but not the report."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from vtc.apis.place import BEARER
from vtc.proxy.asker import Answer, Asker

MOST_REQUESTS = 30
LATE = 2
"""Questions in a row that get no answer in time, after which no more are asked."""
SHORT = 5
"""Seconds for what a server knows by heart."""


class NotAskedError(OSError):
    """No more is asked."""


class Bounded(Asker):
    """Asks at most `MOST_REQUESTS` questions; what is not asked any more gets an answer that says why."""

    def __init__(
        self, url: str, *, key: str, seconds: float, in_all: float, told: Callable[[str], None] = lambda _: None
    ) -> None:
        """`told` is given the name of each question before it is asked."""
        super().__init__(url, key=key, seconds=min(SHORT, seconds))
        self.asked = 0
        self.about = ""
        """What the next question finds out, for people."""
        self.stopped = ""
        """Why no more is asked."""
        self._patience = seconds
        self._until = time.monotonic() + in_all
        self._told = told
        self._late = 0

    def patient(self) -> None:
        """From now on wait as long for an answer as a model may take."""
        self.seconds = self._patience

    def ask(
        self, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None, key: str = BEARER
    ) -> Answer:
        if not self.stopped and self.asked == MOST_REQUESTS:
            self.stopped = f"{MOST_REQUESTS} requests were sent"
        left = self._until - time.monotonic()
        if not self.stopped and left <= 0:
            self.stopped = "the time for all of it was over"
        if self.stopped:
            return Answer(error=NotAskedError(None, f"not asked: {self.stopped}"))
        self.asked += 1
        self._told(self.about or path)
        patience, self.seconds = self.seconds, min(self.seconds, left)
        try:
            answer = super().ask(path, body, headers, key)
        except KeyboardInterrupt:
            self.stopped = "Ctrl-C"
            return Answer(error=NotAskedError(None, "stopped by Ctrl-C"))
        finally:
            self.seconds = patience
        self._late = self._late + 1 if isinstance(answer.error, TimeoutError) else 0
        if isinstance(answer.error, ConnectionRefusedError):
            self.stopped = "the server is gone"
        elif self._late >= LATE:
            self.stopped = f"{self._late} requests in a row got no answer in time"
        return answer
