"""Policies built from the fields of a profile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from vtc.events import Tool
from vtc.guards import GuardChain, Guards, build_chain


def build_policies(tools: Mapping[str, Tool], **fields: Any) -> GuardChain:
    """Build the guards of one reply from fields of a profile's `guards`."""
    return build_chain([msgspec.convert(fields, Guards)], tools)
