"""Decide the fate of traffic that cannot be read, and write its replacement. Nothing else decides it.

              a frame                     after a fault in a stream     a whole reply
    open      passes, as does the rest    all passes as it came         passes as it came
    strict    is left out                 nothing leaves                a message takes its place
    bridged   nothing leaves from there   nothing leaves                an error of the client's API takes its place

A reply is *strict* where a policy refuses calls: it would not see those in what was not read. It is *bridged* where the
client could not read it as it came, as the server speaks another API; so is a stream of a server that knows tools by
other names. It is *open* otherwise. One that is strict and bridged has the fate of a strict one.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection
from dataclasses import dataclass
from typing import NamedTuple

from vtc.apis import Api, BadRequest, Request, answer, convert_to_stream, make_error_stream, may_be_reply
from vtc.apis.contract import FULL
from vtc.dialects.text_client import conversation
from vtc.events import Failure, ToolCall
from vtc.json_text import encode, is_unambiguous
from vtc.profiles.plan import ToolProtocol
from vtc.reporting.report import Report
from vtc.scrub import format_exception
from vtc.wire.framing import FrameTooLong

logger = logging.getLogger(__name__)

JSON_MEDIA_TYPE = "application/json"
WITHHELD = "The reply was withheld: it could not be read, and a policy holds here that refuses calls."
"""Takes the place of a whole reply for the client."""
UNREADABLE = "the reply could not be read"


def render_whole_reply(api: Api, request: Request, text: str, seed: str, created: int) -> bytes:
    """Write a whole reply that says `text`; `created` is the time in seconds since 1970."""
    digest = hashlib.sha256(seed.encode()).hexdigest()
    return answer(api, request, text, digest, created)


class LocalReply(NamedTuple):
    """A reply that leaves in the place of the server's."""

    media_type: str
    body: bytes
    status: int = 200


@dataclass(frozen=True, slots=True)
class OwnReplies:
    """Writes whole replies that no model wrote, in the client's API."""

    api: Api
    request: Request
    protocol: ToolProtocol
    seed: str
    created: int = 0
    """The time of replies where the server tells none, in seconds since 1970."""

    def render_text(self, text: str) -> bytes:
        """Write a reply that says `text`, as the client reads it."""
        client, tools = self.protocol.client_text, self.protocol.by_name
        final = client.profile.final_call if client else None
        if client and final and final.tool in tools:
            call = ToolCall(final.tool, json.dumps({final.argument: text}, ensure_ascii=False))
            text = conversation.write_for_client(call, client.dialect, tools)
        return render_whole_reply(self.api, self.request, text, self.seed, self.created)

    def convert_to_asked(self, body: bytes) -> LocalReply:
        """Return a whole reply in the form that the client asked for."""
        if not self.request.stream:
            return LocalReply(JSON_MEDIA_TYPE, body)
        return LocalReply(self.api.framing.media_type, convert_to_stream(self.api, body, self.request))

    def render_error(self, failure: Failure, status: int) -> LocalReply:
        """Write an error of the client's API; of a prompt that is too long it is the one that its agents know."""
        if failure.kind == FULL:
            status = 400
            if self.api.layout.full.streamed and self.request.stream:
                return LocalReply(self.api.framing.media_type, make_error_stream(self.api, self.request, failure))
        return LocalReply(JSON_MEDIA_TYPE, encode(self.api.error(failure, status)), status)


@dataclass(frozen=True, slots=True)
class Fate:
    """Decides about the replies of one exchange."""

    strict: bool
    """True if nothing may leave that was not read: a policy that refuses calls would not have seen it."""
    bridged: bool
    """True if the client could not read the reply as it came."""
    own: OwnReplies
    """Writes what takes the place of whole replies."""
    secrets: Collection[str] = ()
    """Words that no log line may hold."""

    @property
    def is_open(self) -> bool:
        """True if what cannot be read passes as it came."""
        return not (self.strict or self.bridged)

    def reads(self, status: int) -> bool:
        """True if a reply with this status is to be read; else an error passes unread."""
        return self.strict or 200 <= status < 300

    # A request

    def decide_request(self, error: BadRequest, report: Report) -> None:
        """Send a request that cannot be rewritten as it came; raises the error where its reply may pass unread, too."""
        if not self.strict:
            raise error
        report.failures.append(f"the request went on as it came: {error}")

    def render_rejection(self, server_api: str) -> LocalReply | None:
        """Write an error for a request that may not be sent; None for any other.

        It would mean another thing to the server, or declares tools in a form in which no policy sees them.
        """
        request = self.own.request
        if self.bridged and request.refers:
            reason = f"{request.refers} is known to no server of {server_api}: send the whole conversation"
        elif self.strict and request.unread:
            reason = f"{request.unread} is not read, and a policy forbids some tools: declare them in `tools`"
        else:
            return None
        return self.own.render_error(Failure(reason), 400)

    # A stream

    def decide_after_fault(self, error: Exception, report: Report) -> bool:
        """Decide about a stream after a fault of ours: True if the rest passes as it came, False if it is lost."""
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
        """Decide about a body that is no stream and too long to be kept; raises `FrameTooLong` if it may not pass."""
        if not self.is_open:
            raise FrameTooLong(reason)
        report.failures.append(reason)

    def report_dropped_frame(self, reason: str, report: Report) -> None:
        """Leave a frame out."""
        report.record_intervention("unread_calls", "dropped", "", "a part of the reply could not be read", reason)

    def report_unknown_parts(self, kinds: str, report: Report) -> None:
        """Report parts of a stream that were read and did not leave, as they are not of the client's API."""
        if self.bridged:
            report.notes.append(f"left out of the reply, as the client's API has no such field: {kinds}")
        else:
            reason = "parts of the reply that VTC does not know did not leave"
            report.record_intervention("unread_calls", "dropped", "", reason, kinds)

    # A whole reply

    def replace_body(self, reason: str, detail: str = "") -> tuple[LocalReply | None, Report]:
        """Return what takes the place of a whole reply that could not be read, None if it passes; and the report."""
        report = Report()
        if self.strict:
            report.record_intervention("unread_calls", "refused", "", f"{reason}, so it was withheld", detail)
            return LocalReply(JSON_MEDIA_TYPE, self.own.render_text(WITHHELD)), report
        report.failures.append(detail or reason)
        if self.bridged:
            return self.own.render_error(Failure("The reply of the server could not be read"), 502), report
        return None, report

    def replace_broken_body(self, error: Exception) -> tuple[LocalReply | None, Report]:
        """Return the same after a fault of ours."""
        if not self.strict:
            becomes = "becomes an error" if self.bridged else "is passed on as it came"
            logger.error("vtc: the reply %s\n%s", becomes, format_exception(error, self.secrets))
        return self.replace_body(UNREADABLE, f"{type(error).__name__}: {error}")

    def may_pass(self, body: bytes) -> bool:
        """True if a whole body that is no reply of the server's API may pass as it came."""
        return not (self.strict and may_be_reply(body))

    def overrides_headers(self, *, changed: bool) -> bool:
        """True if clients are to read a whole reply as it was read here, whatever its headers said."""
        return self.strict or changed

    def keeps_bytes(self, body: bytes, *, unchanged: bool) -> bool:
        """True if a whole reply keeps the bytes of all in it that did not change; else it is written anew."""
        return not self.strict or (unchanged and is_unambiguous(body))
