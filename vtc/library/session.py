"""One exchange in a program that sends and receives its bytes: `vtc.Session`."""

from __future__ import annotations

from collections.abc import Generator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import MappingProxyType
from typing import Any

from vtc.apis import Api, RequestError, find_api
from vtc.apis.fields import is_error, object_of
from vtc.events import Failure
from vtc.exchange import NoAnswer, Rejection, Session, Stream
from vtc.exchange.asking.request import pass_through_on_fault
from vtc.exchange.replying.fate import LocalReply
from vtc.exchange.replying.stream import MAX_BODY_BYTES
from vtc.exchange.target import address_request
from vtc.exchange.whole_replies import EMPTY_REPLY_FAULT
from vtc.json_text import encode_json
from vtc.library import make_planner
from vtc.profiles import Settings
from vtc.profiles.document import suggest_nearest
from vtc.profiles.matching import Facts
from vtc.profiles.schema import API_NAMES
from vtc.reporting import hints
from vtc.wire.compression import UnsupportedEncoding, make_decoder

FRAMING_HEADERS = {"connection", "content-length", "keep-alive", "transfer-encoding"}
"""Headers of one connection and of the length of its body, which differ for the client."""


class LibrarySession(Session):
    """A session that a program opens by names and drives in order: `vtc.Session`.

    The addon's session does the work. This class opens it with defaults, and takes the steps for which the addon waits
    between mitmproxy's hooks.
    """

    def __init__(
        self,
        body: bytes,
        api: str = "openai-chat",
        server_api: str | None = None,
        model: str | None = None,
        path: str | None = None,
        profiles: str | Path | Sequence[str | Path] = (),
        policy: Mapping[str, Any] | None = None,
        seed: str | None = None,
    ) -> None:
        """Open the exchange of a request; `docs/library.md` describes the parameters.

        Raises `RequestError` if the body is no request of the API, an API is unknown or VTC fails, and ValueError for
        invalid profiles.
        """
        spoken = _find_api(api)
        settings = Settings(upstream_api=(_find_api(server_api).name,) if server_api else ())
        files = (profiles,) if isinstance(profiles, str | Path) else profiles
        planner = make_planner(settings, tuple(map(Path, files)), encode_json(policy) if policy else b"")
        self._path = path or spoken.place.build_path(spoken.place.version, model or "")
        facts = Facts(path=self._path, real_names=(model,) if model else ())
        with pass_through_on_fault():
            super().__init__(Session.plan_request(spoken, body, facts, planner, seed or token_hex(8)))
        self.request = self.encode_request()
        """The body to send to the server."""
        self.retry: bytes | None = None
        """The body of a further request; the session needs its answer before it can end the reply."""
        self.reply_status = 0
        """The status for the client; of a reply that is not streamed it is final after `finish`."""
        self.reply_headers: dict[str, str] = {}
        """The server's headers without its framing, by name in lower case; `content-type` is final like the status."""
        self._answer = _ReceivedAnswer(0, {})
        self._stream: Stream | None = None
        self._sent = b""
        self._steps = self._finish_steps()

    def address(self, headers: MutableMapping[str, str]) -> str:
        """Adapt the headers of the request, named in lower case, to its server; return the path there.

        Call it again before a retry.
        """
        headers["accept-encoding"] = "identity"
        return address_request(self, self._api.place, self._path, headers)

    def status(self, code: int, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        """Begin the server's answer to the request, or to a retry."""
        is_first = not self._answer.status
        self._answer = answer = _ReceivedAnswer(code, headers)
        if not is_first:
            return
        self.reply_status = code
        self.reply_headers = {name: value for name, value in answer.headers.items() if name not in FRAMING_HEADERS}
        if not (200 <= code < 300 and answer.media_type == self.server.framing.media_type):
            return
        if not self.may_change_reply:
            answer.passes = True
        elif self.is_streamed(answer.media_type) and not self.plan.buffered:
            with suppress(UnsupportedEncoding):  # `finish` decides about the body
                self._stream = self.stream(answer.encoding)
                self._describe(self.media_type if self.is_bridged else "")

    def feed(self, chunk: bytes) -> bytes:
        """Receive a part of the server's answer; return the bytes that the client can be sent by now."""
        if self._stream and not self.retry:
            return b"".join(self._stream.feed(chunk))
        answer = self._answer
        if answer.passes:
            return chunk
        answer.body += b"" if answer.fault else chunk
        return self._release_body() if len(answer.body) > MAX_BODY_BYTES else b""

    def _release_body(self) -> bytes:
        """Pass on a body that is too long to be read, or discard it."""
        answer, reason = self._answer, f"the reply is longer than {MAX_BODY_BYTES >> 20} MiB"
        answer.passes = self.fate.is_open and self.retry is None
        if answer.passes:
            self.fate.decide_long_body(reason, self.report)
            return bytes(answer.body)
        answer.body, answer.fault = bytearray(), reason
        return b""

    def finish(self) -> bytes:
        """End the server's answer; return the remaining bytes for the client.

        If `retry` is set then, send it, pass its answer to `status` and `feed`, and call `finish` again; without an
        answer the reply ends as if there were no retry.
        """
        self.retry = next(self._steps, None)
        sent, self._sent = self._sent, b""
        return sent

    def _finish_steps(self) -> Generator[bytes, None, None]:
        """End the reply, and yield each request to retry."""
        if self._stream:
            self._sent = b"".join(self._stream.finish())
            yield from self._continue_turn(self._stream)
        elif not self._answer.passes:
            received = LocalReply("", bytes(self._answer.body), self._answer.status)
            try:
                reply = (yield from self._process_whole(self._answer)) or received
            except Exception as error:
                replacement, report = self.fate.replace_broken_body(error)
                self.report.add_reply(report)
                reply = replacement or received
            if reply is not received:
                self._describe(reply.media_type)
            self._sent, self.reply_status = reply.body, reply.status

    def _process_whole(self, answer: _ReceivedAnswer) -> Generator[bytes, None, LocalReply | None]:
        """Turn a whole reply or an error into the client's, in the steps of `proxy.serving.whole_reply`.

        None if it is sent as it was received.
        """
        status = answer.status
        # Step 1: Answer an error that contains a reply, or retry with the quirks learned from it.
        body, fault = answer.decode_body()
        is_rejection = status >= 400 or is_error(object_of(body) or {})
        if status >= 400 and self.may_change_reply and (reply := self.whole.extract_from_error(body, status)):
            return reply
        if is_rejection:
            rejected = Rejection(status, body)
            received = yield from self.retry_rejected(rejected, self._ask)
            if not isinstance(received, Rejection):
                sent = self.whole.rewrite(received)
                return LocalReply(self.whole.detect_media_type(sent), sent)
            status, body = received
            fault = fault if received is rejected else ""
        # Step 2: Explain the remaining error, and translate it or a web page for the client.
        explanation = hints.explain_error(status, body) if status >= 400 else ""
        if (is_rejection or hints.is_web_page(body)) and (error := self.whole.translate_error(body, status)):
            self.report.errors[:] = [explanation or hints.explain_error(None, body)]
            return error
        # Step 3: Rewrite the reply; an error only if a policy lets nothing pass unread.
        if fault:
            return self.whole.replace_unread(fault) if self.fate.reads_status(status) else None
        if status == 200 and not body.strip():
            self.report.errors.append(EMPTY_REPLY_FAULT)
            return self.fate.own.render_error(Failure(f"VTC: {EMPTY_REPLY_FAULT}"), 502)
        sent, is_reply = body, 200 <= status < 300
        if self.may_change_reply and self.fate.reads_status(status):
            if is_reply and self.plan.stack.retry:
                sent = yield from self.whole.rewrite_with_retry(body, self._ask)
            else:
                sent = self.whole.rewrite(body, is_error=not is_reply)
        self.report.errors[:] = [explanation] if explanation else self.report.errors
        is_changed = sent != body
        media_type = self.whole.choose_media_type(sent) if is_changed else ""
        if not media_type and self.fate.overrides_headers(changed=is_changed):
            media_type = answer.media_type  # without another charset than the one that VTC decoded
        return LocalReply(media_type, sent, status)

    def _continue_turn(self, first: Stream) -> Generator[bytes, None, None]:
        """Continue a streamed reply whose turn ended in silence with the answer to a reminder."""
        reminder = self.whole.reminder
        if first.turn is None:
            return
        try:
            received = yield from self._ask(reminder.encode_question(first.turn))
            more = self.whole.convert_to_stream_or_none(received)
            if more is None:
                raise NoAnswer("the answer is not a reply")
        except Exception as error:
            reminder.mark_failed(str(error) if isinstance(error, NoAnswer) else type(error).__name__)
            self._sent += b"".join(first.release_end())
            return
        second = self.continue_reply(first)
        self._sent += b"".join([*second.feed(more), *second.finish()])

    def _ask(self, request: bytes) -> Generator[bytes, None, bytes]:
        """Let the program send a request; return the body of its reply. Raises `NoAnswer`."""
        before = self._answer
        yield request
        if self._answer is before:
            raise NoAnswer("the request was not sent")
        body, fault = self._answer.decode_body()
        if not 200 <= (status := self._answer.status) < 300:
            raise NoAnswer(f"the server answered {status}", status, body)
        if fault or not body.strip():
            raise NoAnswer(fault or EMPTY_REPLY_FAULT)
        return body

    def _describe(self, media_type: str) -> None:
        """Describe a decoded body in the reply's headers; an empty type keeps the server's."""
        self.reply_headers.pop("content-encoding", None)
        if media_type:
            self.reply_headers["content-type"] = media_type


class _ReceivedAnswer:
    """A server's answer to one request."""

    def __init__(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = {name.lower(): value for name, value in headers.items()}
        self.media_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self.encoding = self.headers.get("content-encoding", "")
        self.body = bytearray()
        self.fault = ""
        """The reason why the body cannot be read."""
        self.passes = False
        """True if the body is passed through unread."""

    def decode_body(self) -> tuple[bytes, str]:
        """Return the decoded body, and the reason if it cannot be read."""
        if self.fault:
            return b"", self.fault
        try:
            decoder = make_decoder(self.encoding)
            return decoder.feed(bytes(self.body)) + decoder.finish(), ""
        except ValueError as error:
            return b"", f"the body cannot be decoded: {error}"


def _find_api(name: str) -> Api:
    """Find an API by its name. Raises `RequestError`."""
    api = find_api(name)
    if api is None:
        near = suggest_nearest(name, API_NAMES)
        raise RequestError(f"there is no API {name!r}{near}; known: {', '.join(API_NAMES)}")
    return api
