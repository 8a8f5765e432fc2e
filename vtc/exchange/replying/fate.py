"""Decide the fate of traffic that cannot be read, and create its replacement. Nothing else decides it.

              a frame                        after a fault in a stream    a whole reply
    open      is forwarded, as is the rest   all is forwarded unchanged   is forwarded unchanged
    strict    is dropped                     nothing more is sent         is replaced by a message
    bridged   nothing more is sent           an error is sent             is replaced by an error of the client's API

A reply is *strict* under a policy that denies calls, because the policy would not see calls in unread text. It is
*bridged* if the client could not read it unchanged, because the server speaks another API; a stream of a server that
knows tools by other names is bridged, too. It is *open* otherwise. A reply that is both has the fate of a strict one,
except that the client gets the error after a fault in a stream.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from vtc.apis import Api, Request, RequestError, convert_to_stream, make_error_stream, may_be_reply, render_text_reply
from vtc.apis.contract import CONTEXT_LENGTH_EXCEEDED
from vtc.dialects.text_client import conversation
from vtc.events import Failure, ToolCall
from vtc.json_text import encode_json, is_unambiguous
from vtc.profiles.plan import ToolProtocol
from vtc.reporting.report import Report
from vtc.scrub import format_exception
from vtc.wire.framing import FrameTooLong

logger = logging.getLogger(__name__)

JSON_MEDIA_TYPE = "application/json"
WITHHELD = "The reply was withheld: it could not be read, and a policy that denies calls applies here."
"""Replaces a whole reply for the client."""
UNREADABLE_REASON = "the reply could not be read"


def render_whole_reply(api: Api, request: Request, text: str, seed: str, created: int) -> bytes:
    """Create a whole reply with this text; `created` is the time in seconds since 1970."""
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return render_text_reply(api, request, text, digest, created)


class LocalReply(NamedTuple):
    """A reply that VTC sends in place of the server's."""

    media_type: str
    body: bytes
    status: int = 200


@dataclass(frozen=True, slots=True)
class OwnReplies:
    """Creates whole replies of VTC itself, in the client's API."""

    api: Api
    request: Request
    protocol: ToolProtocol
    seed: str
    created: int = 0
    """Time of replies for which the server gives none, in seconds since 1970."""

    def render_text(self, text: str) -> bytes:
        """Create a reply with this text, in the client's dialect."""
        client, tools = self.protocol.client_text, self.protocol.by_name
        final = client.profile.final_call if client else None
        if client and final and final.tool in tools:
            call = ToolCall(final.tool, json.dumps({final.argument: text}, ensure_ascii=False))
            text = conversation.write_for_client(call, client.dialect, tools)
        return render_whole_reply(self.api, self.request, text, self.seed, self.created)

    def convert_to_asked(self, body: bytes) -> LocalReply:
        """Convert a whole reply to the form that the client asked for."""
        if not self.request.stream:
            return LocalReply(JSON_MEDIA_TYPE, body)
        return LocalReply(self.api.framing.media_type, convert_to_stream(self.api, body, self.request))

    def render_error(self, failure: Failure, status: int) -> LocalReply:
        """Create an error in the client's API; for a prompt that is too long, in the form that agents recognize."""
        if failure.kind == CONTEXT_LENGTH_EXCEEDED:
            status = 400
            if self.api.layout.full.streamed and self.request.stream:
                return LocalReply(self.api.framing.media_type, make_error_stream(self.api, self.request, failure))
        return LocalReply(JSON_MEDIA_TYPE, encode_json(self.api.build_error(failure, status)), status)


@dataclass(frozen=True, slots=True)
class Fate:
    """Decides the fate of the replies of one exchange."""

    strict: bool
    """True if nothing unread may be sent, because a policy that denies calls would not have seen it."""
    bridged: bool
    """True if the client could not read the server's reply unchanged."""
    own: OwnReplies
    """Creates replacements of whole replies."""
    secrets: Collection[str] = ()
    """Words that no log line may contain."""

    @property
    def is_open(self) -> bool:
        """True if unreadable traffic is forwarded unchanged."""
        return not (self.strict or self.bridged)

    def reads_status(self, status: int) -> bool:
        """Return True if a reply with this status is to be read; other errors are forwarded unread."""
        return self.strict or 200 <= status < 300

    def decide_request(self, error: RequestError, report: Report) -> None:
        """Forward a request that cannot be rewritten; raise the error if its reply may be forwarded unread, too."""
        if not self.strict:
            raise error
        report.failures.append(f"the request was forwarded unchanged: {error}")

    def render_rejection(self, server_api: str) -> LocalReply | None:
        """Return an error for a request that must not be sent; None if it may be sent.

        Such a request would change its meaning for the server, or declares tools in a form that no policy sees.
        """
        request = self.own.request
        if self.bridged and request.refers:
            reason = f"{request.refers} is known to no server of {server_api}: send the whole conversation"
        elif self.strict and request.unread:
            reason = f"{request.unread} is not read, and a policy forbids some tools: declare them in `tools`"
        else:
            return None
        return self.own.render_error(Failure(reason), 400)

    def decide_after_fault(self, error: Exception, report: Report) -> bool:
        """Decide about a stream after a fault of VTC: return True to forward the rest, False to withhold it."""
        rest = "forwarded unchanged" if self.is_open else "withheld"
        logger.error(
            "vtc: rewriting failed; the rest of this reply is %s\n%s", rest, format_exception(error, self.secrets)
        )
        if self.is_open:
            report.failures.append(f"{type(error).__name__}: {error}")
        else:
            reason = f"rewriting failed: {type(error).__name__}, so it was withheld"
            report.record_intervention("unread_calls", "refused", "", reason, str(error))
        return self.is_open

    def decide_long_body(self, reason: str, report: Report) -> None:
        """Decide about a non-stream body that is too long; raises `FrameTooLong` if it must not be forwarded."""
        if not self.is_open:
            raise FrameTooLong(reason)
        report.failures.append(reason)

    def report_dropped_frame(self, reason: str, report: Report) -> None:
        """Report a dropped frame."""
        report.record_intervention("unread_calls", "dropped", "", "a part of the reply could not be read", reason)

    def report_unknown_parts(self, kinds: str, report: Report) -> None:
        """Report parts of a stream that were dropped because the client's API lacks them."""
        if self.bridged:
            report.notes.append(f"left out of the reply, because the client's API has no such field: {kinds}")
        else:
            reason = "parts of the reply that VTC does not know were dropped"
            report.record_intervention("unread_calls", "dropped", "", reason, kinds)

    def replace_body(self, reason: str, detail: str = "") -> tuple[LocalReply | None, Report]:
        """Return the replacement of a whole reply that could not be read, None to forward it; and the report."""
        report = Report()
        if self.strict:
            report.record_intervention("unread_calls", "refused", "", f"{reason}, so it was withheld", detail)
            return LocalReply(JSON_MEDIA_TYPE, self.own.render_text(WITHHELD)), report
        report.failures.append(detail or reason)
        if self.bridged:
            return self.own.render_error(Failure("The reply of the server could not be read"), 502), report
        return None, report

    def replace_broken_body(self, error: Exception) -> tuple[LocalReply | None, Report]:
        """Return the same after a fault of VTC."""
        if not self.strict:
            becomes = "becomes an error" if self.bridged else "is forwarded unchanged"
            logger.error("vtc: the reply %s\n%s", becomes, format_exception(error, self.secrets))
        return self.replace_body(UNREADABLE_REASON, f"{type(error).__name__}: {error}")

    def may_pass(self, body: bytes) -> bool:
        """Return True if a whole body that is no reply of the server's API may be forwarded unchanged."""
        return not (self.strict and may_be_reply(body))

    def overrides_headers(self, *, changed: bool) -> bool:
        """Return True if VTC's headers replace the server's, so that clients read a whole reply as VTC did."""
        return self.strict or changed

    def keeps_bytes(self, body: bytes, *, unchanged: bool) -> bool:
        """Return True if unchanged parts of a whole reply keep their bytes; else it is re-encoded."""
        return not self.strict or (unchanged and is_unambiguous(body))
