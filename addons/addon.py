"""`mitmdump -s addons/addon.py`: Virtual Tool Calling as a mitmproxy addon."""

import importlib.util
import logging
import sys
from pathlib import Path

logger = logging.getLogger("vtc")
HERE = Path(__file__).resolve().parent
OURS = next(path for path in (HERE.parent / "vtc", HERE.parent) if (path / "proxy").is_dir())
"""The package: next to this folder in a checkout, around it when installed."""


def take_ours() -> None:
    """Make `import vtc` find the package of this script, because another project has one of the same name."""
    found = importlib.util.find_spec("vtc")
    if found and found.origin and Path(found.origin).resolve().parent == OURS:
        return
    if found:
        logger.info(f"vtc: {OURS} is used; another package or copy named vtc, {found.origin}, is ignored")
    for name in [name for name in sys.modules if name.partition(".")[0] == "vtc"]:
        del sys.modules[name]
    # mitmproxy runs in a separate environment, so only this package is loaded from here.
    spec = importlib.util.spec_from_file_location("vtc", OURS / "__init__.py", submodule_search_locations=[str(OURS)])
    assert spec
    assert spec.loader
    sys.modules["vtc"] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)


try:
    take_ours()
    from vtc.proxy.addon import VirtualToolCalling

    addons = [VirtualToolCalling()]
except ModuleNotFoundError as error:
    source = HERE.parent if HERE.parent != OURS else "virtual-tool-calling"
    # mitmproxy exits if an error is logged while it starts.
    logger.error(
        f"VTC cannot be loaded: {error}. Install it into the environment that mitmproxy runs in: "
        f"{sys.executable} -m pip install {source} (with pipx: pipx inject --include-apps mitmproxy {source}; "
        f"with uv: uv tool install mitmproxy --with {source})"
    )
    addons = []
