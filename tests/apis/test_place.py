"""The place of an API's requests: the content of a path, and its construction."""

from __future__ import annotations

from urllib.parse import urljoin

import pytest

from vtc.apis import APIS, match_request
from vtc.apis.place import PathMatch, Place

PLAIN = Place("/chat/completions", version="/v1")
IN_PATH = Place(
    "/models/{model}:generate",
    "/models/{model}:stream",
    "alt=sse",
    "/v1beta",
    versions=("/v1",),
    key_query="key",
    own_query=("beta",),
    kinds=("tuned", "endpoints"),
)


@pytest.mark.parametrize(
    ("place", "path", "found"),
    [
        (PLAIN, "/v1/chat/completions", PathMatch("/v1", "", False)),
        (PLAIN, "/V1/Chat/Completions/", PathMatch("/V1", "", False)),
        (PLAIN, "/v1/completions", None),
        (IN_PATH, "/v1beta/models/m:generate", PathMatch("/v1beta", "m", False)),
        (IN_PATH, "/x/v1/models/Qwen/Qwen3:8b:stream", PathMatch("/x/v1", "Qwen/Qwen3:8b", True)),
        (IN_PATH, "/v1/models/Qwen%2FQwen3:generate", PathMatch("/v1", "Qwen/Qwen3", False)),
        (IN_PATH, "/v1/models/qwen3%3A8b%3astream", PathMatch("/v1", "qwen3:8b", True)),
        (IN_PATH, "/v1/models/a%0Ab\n:generate", PathMatch("/v1", "a\nb\n", False)),
        (IN_PATH, "/v1/tuned/T:generate", PathMatch("/v1", "tuned/T", False)),
        (IN_PATH, "/v1/projects/p/endpoints/1:stream", PathMatch("/v1/projects/p", "endpoints/1", True)),
        (IN_PATH, "/v1/other/T:generate", None),
        (IN_PATH, "/v1/models/:generate", None),
        (IN_PATH, "/v1/models/m:count", None),
    ],
)
def test_path_contains_model_and_reply_format(place: Place, path: str, found: PathMatch | None) -> None:
    assert place.match_path(path) == found


@pytest.mark.parametrize(
    ("model", "streams"),
    [("m", False), ("m", True), ("Qwen/Qwen3:8b", True), ("é ?", False), ("tuned/T", True), ("a\nb", False)],
)
def test_built_path_is_parsed_back(model: str, streams: bool) -> None:
    path, _, query = IN_PATH.build_path("/x", model, "a=1&alt=sse", streams=streams).partition("?")
    assert IN_PATH.match_path(path) == PathMatch("/x", model, streams)
    assert query == ("alt=sse&a=1" if streams else "a=1")
    assert PLAIN.build_path("/v1", model, streams=streams) == "/v1/chat/completions"


@pytest.mark.parametrize("model", ["../../files/x", "..", "a/../b", "./a", "/a", "a//b", ".", "a/..", "%2e%2e/b"])
def test_a_name_leads_nowhere_else(model: str) -> None:
    """Clients and servers resolve the parts of a path (RFC 3986 5.2.4)."""
    for streams in (False, True):
        path = IN_PATH.build_path("/v1beta", model, streams=streams).partition("?")[0]
        assert urljoin("http://a/", path) == f"http://a{path}"
        assert not {"", ".", "..", "%2e", "%2e%2e"} & {*path.casefold().split("/")[1:]}
        found = IN_PATH.match_path(path)
        assert found is not None
        assert found.model == model.strip("/")


def test_name_may_contain_its_kind() -> None:
    """Google's list of models contains such names, which clients of other APIs request."""
    for name, path in {"models/x": "/models/x", "tuned/x": "/tuned/x", "other/x": "/models/other/x"}.items():
        assert IN_PATH.build_path("/v1", name) == f"/v1{path}:generate"


def test_a_stream_that_is_asked_for_in_another_form_is_none_of_the_api() -> None:
    assert IN_PATH.match_path("/models/m:stream", "key=k") is None
    assert IN_PATH.match_path("/models/m:stream", "key=k&alt=sse") is not None
    assert IN_PATH.match_path("/models/m:generate", "") is not None


def test_query_keeps_fields_with_a_meaning_for_every_server() -> None:
    assert IN_PATH.split_own_query("alt=sse&key=a%2Fb&route=1&beta=2") == ("route=1", "a/b")
    for name in ("KEY", "%6bey", "Ke%59"):
        assert IN_PATH.split_own_query(f"route=1&{name}=a%2Fb&ALT=sse") == ("route=1", "a/b")
    assert PLAIN.split_own_query("key=a&route=1") == ("key=a&route=1", "")


def test_version_is_not_part_of_the_prefix() -> None:
    assert [IN_PATH.strip_version(one) for one in ("/x/v1beta", "/v1", "/x", "/v2")] == ["/x", "", "/x", "/v2"]


def test_a_request_for_a_stream_and_one_for_a_whole_reply_are_of_one_conversation() -> None:
    assert (
        IN_PATH.whole_reply_path("/v1/models/m:stream?alt=sse")
        == IN_PATH.whole_reply_path("/v1/models/m:generate")
        != ""
    )
    assert PLAIN.whole_reply_path("/v1/chat/completions?x=1") == "/v1/chat/completions?x=1"


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_api_finds_itself_at_its_own_place(api: object) -> None:
    place = api.place  # type: ignore[attr-defined]
    for streams in (False, True):
        assert match_request("POST", place.build_path(f"/x{place.version}", "m", streams=streams)) is api
