"""The path of the script for mitmproxy."""

from __future__ import annotations

import runpy

from vtc.proxy import launch
from vtc.proxy.addon import VirtualToolCalling


def test_the_script_holds_the_addon() -> None:
    (addon,) = runpy.run_path(str(launch.find_script()))["addons"]
    assert isinstance(addon, VirtualToolCalling)
