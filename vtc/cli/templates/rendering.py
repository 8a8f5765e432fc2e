"""Render an untrusted chat template in a separate process, in Jinja's sandbox, with limits on time and memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from vtc.cli.templates import program
from vtc.scrub import drop_credentials

MAX_TEMPLATE_CHARS = 1 << 18
"""Maximum length of a template; longer ones are not rendered."""
RENDER_SECONDS = 5
"""Limit of the CPU time for all conversations together; the limit of the elapsed time is twice as long."""
MAX_RENDER_BYTES = 1 << 29
"""Limit of the memory of the rendering process; Python itself uses about 50 MB."""


class RenderError(Exception):
    """Raised when a template cannot be rendered, with the reason."""


def render_template(source: str, contexts: Sequence[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Render a template with each of these contexts in a separate process (`program`). Raises `RenderError`."""
    if len(source) > MAX_TEMPLATE_CHARS:
        raise RenderError("it is too long to be inspected")
    request = {"source": source, "fields": contexts, "seconds": RENDER_SECONDS, "bytes": MAX_RENDER_BYTES}
    command = [sys.executable, "-P", program.__file__]
    try:
        done = subprocess.run(
            command,
            input=json.dumps(request).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=drop_credentials(os.environ),  # in case a template escapes the sandbox
            timeout=2 * RENDER_SECONDS,
        )
        texts = msgspec.convert(json.loads(done.stdout or b"null"), list[dict[str, str]] | None)
    except subprocess.TimeoutExpired:
        raise RenderError("it takes too long") from None
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise RenderError(f"it cannot be inspected: {type(error).__name__}") from None
    if texts is None or len(texts) != len(contexts):
        raise RenderError(
            "it takes too much memory" if done.returncode == 0 else "it takes too long, or too much memory"
        )
    return texts
