"""`mitmdump -s addons/addon.py`: Virtual Tool Calling as a mitmproxy addon."""

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("vtc") is None:
    # mitmproxy lives in an environment of its own: take the package that lies beside this folder.
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from vtc.proxy.addon import VirtualToolCalling  # needs the path above

addons = [VirtualToolCalling()]
