"""`mitmdump -s addons/addon.py`: Virtual Tool Calling as a mitmproxy addon."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

if importlib.util.find_spec("vtc") is None:
    # mitmproxy lives in an environment of its own: take the package that lies beside this folder.
    sys.path.insert(0, str(ROOT))

try:
    from vtc.proxy.addon import VirtualToolCalling
except ModuleNotFoundError as error:
    message = f"{error}: install VTC into the environment that mitmproxy runs in (pip install {ROOT})"
    raise ModuleNotFoundError(message) from error

addons = [VirtualToolCalling()]
