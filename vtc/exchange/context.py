"""The values that the parts of a session share, as long as the plan of its exchange stays the same."""

from __future__ import annotations

from typing import NamedTuple

from vtc.apis import Api, Request
from vtc.apis.seals import SealKey
from vtc.exchange.remembering.kept_conversation import KeptConversation
from vtc.profiles.plan import Plan
from vtc.reporting.report import Report


class ExchangeContext(NamedTuple):
    """The request of an exchange, the APIs of its client and server, its plan and its report."""

    client: Api
    server: Api
    request: Request
    plan: Plan
    report: Report
    seals: SealKey | None = None
    """Signs the seals of a server of another API, and recognizes them."""
    kept: KeptConversation | None = None
    """The conversation, if the server keeps it."""

    @property
    def is_bridged(self) -> bool:
        """True if client and server speak different APIs."""
        return self.server is not self.client
