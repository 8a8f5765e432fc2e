"""The profiles of a request, and the precedence among them and the user's settings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, cast

import msgspec

from vtc.dialects import Description
from vtc.dialects.reading.reader import UnknownTools
from vtc.events import Silence
from vtc.guards.chain import Guards
from vtc.profiles.document import suggest_nearest
from vtc.profiles.schema import (
    ClientProfile,
    Exchanged,
    Match,
    ModelProfile,
    PolicyProfile,
    RequestChanges,
    ResponseChanges,
    Retry,
    ServerProfile,
)
from vtc.profiles.settings import Settings

NO_GUARDS = Guards()
"""The rules of a profile without rules."""


class UnknownName(ValueError):
    """Raised if a setting names a profile that does not exist; `setting` is the setting."""

    def __init__(self, setting: str, name: str, known: Sequence[str]) -> None:
        super().__init__(f"there is no {setting} {name!r}{suggest_nearest(name, known)}; `vtc profiles` lists all")
        self.setting = setting


UNKNOWN_CLIENT = ClientProfile(name="unknown", match=Match())
UNKNOWN_MODEL = ModelProfile(name="unknown", match=Match(), recalls=True)
"""The default for unknown models: the request is unchanged, and calls that leaked into the text are lifted."""
UNKNOWN_SERVER = ServerProfile(name="unknown", match=Match())


def first_set[T](*values: T | Literal["auto", ""] | None, otherwise: T) -> T:
    """Return the first value that is set; None, an empty value and `auto` count as unset."""
    values_set = (value for value in values if value not in (None, "auto", "", ()))
    return cast(T, next(values_set, otherwise))


class ProfileStack(msgspec.Struct, frozen=True, kw_only=True):
    """The profiles of one request under the user's options; the only place that defines precedence.

    A setting is taken from the user's options, then from the client, the model and the server, then from the default;
    but for the steps that a server needs, the server's own profile precedes the model's. Changes to requests and
    replies add up: the server's, the model's, for replies the client's, then the policies' by priority; a setting that
    only one can decide is the last one's.
    """

    settings: Settings = Settings()
    client: ClientProfile = UNKNOWN_CLIENT
    model: ModelProfile = UNKNOWN_MODEL
    derived: Description | None = None
    """The dialect derived from the chat template of a model without a profile."""
    server: ServerProfile = UNKNOWN_SERVER
    policies: tuple[PolicyProfile, ...] = ()
    prompted: bool = False
    """The server has rejected its model's tools, so the tools go into the prompt: precedes the model's profile."""
    learned_api: str = ""
    """The only API in which the server has this model, learned from a rejection: precedes everything."""

    @property
    def known_model(self) -> ModelProfile | None:
        """The model's profile; None if none matches."""
        return None if self.model is UNKNOWN_MODEL else self.model

    @property
    def tools(self) -> str:
        """`native` or `prompt`: how tools reach the model."""
        return first_set(self.settings.tools, "prompt" if self.prompted else "", otherwise=self.model.tools)

    @property
    def dialect(self) -> str:
        """The dialect in which calls are rendered for the model."""
        return first_set(self.settings.dialect, otherwise=self.model.dialect)

    @property
    def lenient(self) -> bool:
        """True if malformed calls are repaired."""
        return first_set({"on": True, "off": False}.get(self.settings.lenient), self.model.lenient, otherwise=True)

    @property
    def unknown_tools(self) -> UnknownTools:
        """How to handle a call of a tool that was not offered."""
        return first_set(self.settings.unknown_tools, otherwise=self.model.unknown_tools)

    @property
    def echo(self) -> Literal["text", "steer", "call"]:
        """How to handle a call that repeats one in a tool result of the request."""
        return first_set(self.settings.echo, otherwise=self.model.echo)

    @property
    def max_calls(self) -> int | None:
        """Maximum number of calls of a reply; None is no limit."""
        return first_set(self.client.max_calls, otherwise=self.model.max_calls)

    @property
    def apis(self) -> tuple[str, ...]:
        """The APIs that the server speaks, the default first; empty for the client's own."""
        apis = first_set(self.learned_api, self.settings.upstream_api, self.model.api, self.server.api, otherwise=())
        return () if "same" in apis else (apis,) if isinstance(apis, str) else tuple(apis)

    @property
    def recalls(self) -> bool:
        """True if the model's plain-text reasoning is restored."""
        return self.model.recalls and (self.known_model is not None or self.server.recalls)

    @property
    def as_is(self) -> bool:
        """True if the server accepts requests as they arrive, and returns errors that clients know."""
        return self.server.ready == "as-is" or not self.server.templates

    @property
    def steps(self) -> Mapping[str, Any]:
        """The steps that prepare requests for the server, by name and value."""
        return {**({} if self.as_is else self.model.ready.steps()), **self.server.steps}

    @property
    def ids(self) -> Literal["short", "alphanumeric9", "kimi"] | None:
        """The form of generated ids."""
        ready = self.server.ready
        return first_set(None if isinstance(ready, str) else ready.ids, otherwise=self.model.ready.ids)

    @property
    def _changes(self) -> tuple[Exchanged, ...]:
        return (self.server, self.model, *self.policies)

    @property
    def request(self) -> RequestChanges:
        """The changes to requests, of all profiles together."""
        kept = self.server.special_tokens if self.model.special_tokens else {}
        requests = [profile.request for profile in self._changes]
        fields = [requests[0].set, kept, *(changes.set for changes in requests[1:])]
        return RequestChanges(
            set={key: value for some in fields for key, value in some.items()},
            drop=tuple(path for changes in requests for path in changes.drop),
            drop_flags=tuple(flag for changes in requests for flag in changes.drop_flags),
            rename={path: name for changes in requests for path, name in changes.rename.items()},
        )

    @property
    def _response_changes(self) -> list[ResponseChanges]:
        policies = [policy.response for policy in self.policies]
        return [self.server.response, self.model.response, self.client.response, *policies]

    @property
    def response_drop(self) -> frozenset[str]:
        """Names of reply fields that the client does not receive."""
        return frozenset(name for changes in self._response_changes for name in changes.drop)

    @property
    def response_thoughts(self) -> tuple[str, ...]:
        """The fields that carry reasoning to the client, if its API has more than one; empty for the server's."""
        return first_set(*(changes.thoughts for changes in reversed(self._response_changes)), otherwise=())

    @property
    def retry(self) -> Retry | None:
        """How to retry after a faulty reply; None for no retry."""
        if self.settings.retry == "off":
            return None
        usual = Retry() if self.settings.retry == "on" else None
        return first_set(*(policy.retry for policy in reversed(self.policies)), self.model.retry, otherwise=usual)

    @property
    def is_unstreamed(self) -> bool:
        """True if a streaming request that offers tools is sent without streaming."""
        stream = first_set(*(profile.upstream_stream for profile in reversed(self._changes)), otherwise="keep")
        return stream == "never" or (self.retry is not None and self.retry.needs_whole)

    @property
    def silences(self) -> frozenset[Silence]:
        """The kinds of silence that cause a retry."""
        return self.retry.silences if self.retry else frozenset()

    @property
    def policy_paths(self) -> list[str]:
        """The dotted paths of the request's fields that policies set or drop."""
        changes = [policy.request for policy in self.policies]
        return [path for change in changes for path in (*change.set, *change.drop)]

    @property
    def guards(self) -> tuple[Guards, ...]:
        """The rules, in the order in which they act: those of the model, the client, and the policies."""
        guards = (self.model.guards, self.client.guards, *(policy.guards for policy in self.policies))
        return tuple(rules for rules in guards if rules != NO_GUARDS)
