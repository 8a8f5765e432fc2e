"""HTTP requests of a probe, with limits on their number and time."""

from __future__ import annotations

import time
from collections.abc import Callable

from vtc.proxy.asking.asker import Asker, ServerAnswer
from vtc.proxy.asking.question import ServerQuestion
from vtc.proxy.trust import DEFAULT_TRUST, Trust

MAX_PROBE_REQUESTS = 30
"""Maximum number of requests of one probe."""
MAX_LATE_ANSWERS = 2
"""Number of consecutive timeouts after which the probe stops."""
SELF_DESCRIPTION_SECONDS = 5
"""Time limit in seconds for questions that need no model."""
BY_USER = "stopped by Ctrl-C"
"""The reason of `BoundedAsker.stopped` when the user interrupts the probe."""


class NotAskedError(OSError):
    """Raised in place of an answer when a request was not sent, because the probe has stopped."""


class BoundedAsker(Asker):
    """An asker with limits on requests and time; Ctrl-C stops it but does not end the program.

    After it has stopped, each request gets an answer with a `NotAskedError` that states the reason.
    """

    def __init__(
        self,
        url: str,
        *,
        key: str,
        seconds: float,
        total_seconds: float,
        progress: Callable[[str], None] = lambda _: None,
        trust: Trust = DEFAULT_TRUST,
    ) -> None:
        """Create an asker; `progress` is called with the name of each question before it is sent."""
        super().__init__(url, key=key, seconds=min(SELF_DESCRIPTION_SECONDS, seconds), trust=trust)
        self.request_count = 0
        self.purpose = ""
        """The purpose of the next request, for people."""
        self.stopped = ""
        """The reason why no more requests are sent; empty while they are."""
        self._patience = seconds
        self._until = time.monotonic() + total_seconds
        self._progress = progress
        self._late = 0
        self._asks_model = False

    def use_model_timeout(self) -> None:
        """Apply the time limit of model answers to all later requests."""
        self.seconds, self._asks_model = self._patience, True

    def ask(self, question: ServerQuestion) -> ServerAnswer:
        if not self.stopped and self.request_count == MAX_PROBE_REQUESTS:
            self.stopped = f"{MAX_PROBE_REQUESTS} requests were sent"
        remaining = self._until - time.monotonic()
        if not self.stopped and remaining <= 0:
            self.stopped = "the time limit of the probe was reached"
        if self.stopped:
            return ServerAnswer(error=NotAskedError(None, f"not asked: {self.stopped}"))
        self.request_count += 1
        self._progress(self.purpose or question.path)
        patience, self.seconds = self.seconds, min(self.seconds, remaining)
        try:
            answer = super().ask(question)
        except KeyboardInterrupt:
            self.stopped = BY_USER
            return ServerAnswer(error=NotAskedError(None, BY_USER))
        finally:
            self.seconds = patience
        self._late = self._late + 1 if isinstance(answer.error, TimeoutError) else 0
        if self._asks_model and answer.status in (401, 403):  # the server would reject later requests, too
            self.stopped = (
                f"the server denies access (status {answer.status}): give a key that it accepts with --key-env"
            )
        elif isinstance(answer.error, ConnectionRefusedError):
            self.stopped = "the server no longer accepts connections"
        elif self._late >= MAX_LATE_ANSWERS:
            self.stopped = f"{self._late} consecutive requests timed out"
        return answer
