"""Store the responses to which later requests of a Responses client refer, because no server of another API has them.

    request    {"previous_response_id": "resp_1", "input": [...]}    or {"type": "item_reference", "id": "msg_1"}
    becomes    {"input": [the input of resp_1, its output, ...]}

Each response is stored with the whole conversation before it, so it needs no other entry. Only the client with the same
credentials finds it.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from vtc.apis import Request
from vtc.json_text import decode_json, encode_json
from vtc.profiles.memory import Memory, digest_texts


class StoredResponse(NamedTuple):
    """A conversation up to a response: its input and output items as JSON, the input compressed."""

    input: bytes
    output: bytes


class ResponseStore:
    """The responses that one client received."""

    def __init__(self, memory: Memory, whose: tuple[str, ...]) -> None:
        self._cache = memory.responses
        self._whose = whose

    def resolve_references(self, request: Request) -> bytes | None:
        """Return the body with stored items in place of references; None without references, or if one is unknown."""
        return request.resolve_references(self._find) if request.refers else None

    def _find(self, id_: str) -> Sequence[Any] | None:
        match self._cache.get(self._make_key(id_)):
            case StoredResponse(input_, output):
                return [*decode_json(zlib.decompress(input_)), *decode_json(output)]
            case bytes(item):
                return [decode_json(item)]
        return None

    def make_recorder(self, request: Request) -> Callable[[Mapping[str, Any]], None] | None:
        """Return a function that stores the response to this request; None if it is not to be stored."""
        items = request.storable_items
        if items is None:
            return None
        compressed = zlib.compress(encode_json(items), level=1)

        def store_response(response: Mapping[str, Any]) -> None:
            stored = StoredResponse(compressed, encode_json(response["output"]))
            self._cache.store(self._make_key(response["id"]), stored, sum(map(len, stored)))
            for item in response["output"]:
                data = encode_json(item)
                self._cache.store(self._make_key(item["id"]), data, len(data))

        return store_response

    def _make_key(self, id_: str) -> bytes:
        return digest_texts(*self._whose, id_)
