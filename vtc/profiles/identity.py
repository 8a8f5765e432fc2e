"""Distinguish clients by the credentials of their requests: facts about one client never apply to another.

Everything with the name of a credential counts, including signatures, although these differ in each request: losing a
memory is better than sharing it. Values that a load balancer or a bot check sets do not identify a client and change
within a conversation, as nonces do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from re import compile as pattern
from re import split
from urllib.parse import unquote_plus

from vtc.scrub import is_credential, split_query

TRANSIENT_COOKIES = frozenset(
    (
        # https://developers.cloudflare.com/fundamentals/reference/policies-compliances/cloudflare-cookies/
        *("__cf_bm", "_cfuvid", "cf_clearance", "__cflb", "__cfruid", "__cfseq", "__cfwaitingroom"),
        # https://docs.aws.amazon.com/elasticloadbalancing/latest/application/sticky-sessions.html
        *("awsalb", "awsalbcors", "awsalbtg", "awsalbtgcors"),
        # https://docs.aws.amazon.com/elasticloadbalancing/latest/classic/elb-sticky-sessions.html
        *("awselb", "awselbcors"),
        # https://docs.aws.amazon.com/waf/latest/developerguide/waf-tokens.html
        "aws-waf-token",
        # https://cloud.google.com/load-balancing/docs/backend-service#session_affinity
        "gclb",
        # https://azure.github.io/PSRule.Rules.Azure/en/rules/Azure.AppService.ARRAffinity
        *("arraffinity", "arraffinitysamesite"),
        # https://learn.microsoft.com/azure/application-gateway/configuration-http-settings#cookie-based-affinity
        *("applicationgatewayaffinity", "applicationgatewayaffinitycors"),
    )
)
"""Names, in lower case, of cookies that load balancers and bot checks set; their other cookies identify a client."""

_TRANSIENT = ("nonce", "timestamp", "requestid")
"""Ends of names, without underscores and hyphens, of values that differ in each request."""
_SCHEME = pattern(r"^[\w-]+\s+(?=\S+$)")


def credentials_of(headers: Mapping[str, str], query: str) -> Iterator[str]:
    """Yield each credential of a request with its name; header names are in lower case."""
    for name in sorted(filter(is_credential, headers)):
        parts = [part for part in split(r"[;,]\s*", headers[name]) if part and not _is_transient(name, part)]
        if parts:
            yield f"{name}: {'; '.join(parts)}"
    for part in split_query(query)[1]:
        name, _, value = part.partition("=")
        if value:
            yield f"?{unquote_plus(name)}={value}"


def _is_transient(header: str, part: str) -> bool:
    """Return True if a part of a header, `NAME=VALUE`, does not identify the client."""
    name, _, value = _SCHEME.sub("", part).casefold().partition("=")
    if header == "cookie" and name in TRANSIENT_COOKIES:
        return True
    # A token may end in `nonce=`, which is padding and no value.
    return bool(value.strip("=")) and name.replace("-", "").replace("_", "").endswith(_TRANSIENT)
