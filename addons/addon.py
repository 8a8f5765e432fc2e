"""`mitmdump -s addons/addon.py`: Virtual Tool Calling as a mitmproxy addon."""

import sys
from pathlib import Path

# mitmproxy may live in an environment of its own, where the package beside this file is not installed.
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vtc.proxy.addon import VirtualToolCalling

addons = [VirtualToolCalling()]
