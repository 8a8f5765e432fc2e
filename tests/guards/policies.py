"""Policies as the YAML of a profile has them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vtc.events import Tool
from vtc.guards import GuardChain, Guards, build_chain


def policies(tools: Mapping[str, Tool], **fields: Any) -> GuardChain:
    """Make the guards of one reply of these fields of a profile's `guards`."""
    return build_chain([msgspec.convert(fields, Guards)], tools)
