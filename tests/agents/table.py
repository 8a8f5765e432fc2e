"""The tested agents of the table (`profiles/agents`): their installation, and their call that reads a file."""

from __future__ import annotations

from pathlib import Path

from tests.agents.apis import Call
from tests.agents.processes import install_node, npm_install, pip_install
from vtc.profiles import builtin_directory, load_profiles

PATH = ["/usr/local/bin", "/usr/bin", "/bin"]
AGENTS = {name: agent for name, agent in load_profiles([builtin_directory()]).agents.items() if agent.tried}
READS = {
    "claude": ("Read", "file_path"),
    "cline": ("read_files", "files"),
    "codex": ("exec_command", "cmd"),
    "continue": ("Read", "filepath"),
    "copilot": ("view", "path"),
    "gemini": ("read_file", "file_path"),
    "gptme": ("shell", "command"),
    "grok-cli": ("view_file", "path"),
    "hermes": ("read_file", "path"),
    "kilo": ("read", "filePath"),
    "kimi": ("Read", "path"),
    "nanobot": ("read_file", "path"),
    "opencode": ("read", "filePath"),
    "openclaw": ("read", "path"),
    "openhands": ("terminal", "command"),
    "pi": ("read", "path"),
    "qwen": ("read_file", "file_path"),
    "vibe": ("read_file", "path"),
}
"""Each agent's tool for reading a file, and its parameter."""
DEMANDED = {"openhands": {"security_risk": "LOW"}}
"""Additional required arguments of some agents."""
SCRIPTS = {
    "@anthropic-ai/claude-code": "@anthropic-ai/claude-code/install.cjs",
    "opencode-ai": "opencode-ai/postinstall.mjs",
}
"""The script to run once after npm has installed a package."""
QUIET = {"DISABLE_AUTOUPDATER": "1", "OPENCODE_DISABLE_MODELS_FETCH": "1", "KILO_DISABLE_MODELS_FETCH": "1"}


NODES = {"openclaw": "26.12.1"}
"""The version of Node for agents that need a newer one than the others."""


def build_path(name: str) -> str:
    """Install an agent and a Node for it; return the search path of its run."""
    folders = [install_agent(name), install_node(NODES[name]) if name in NODES else install_node()]
    return ":".join([*(str(folder) for folder in folders if folder), *PATH])


def install_agent(name: str) -> Path:
    """Install an agent in the version and by the command of its profile; return the folder of its commands."""
    agent = AGENTS[name]
    assert agent.tried
    words = agent.install.split()
    if words[:3] == ["npm", "install", "-g"]:
        return npm_install(words[3], agent.tried.version, SCRIPTS.get(words[3]))
    assert words[:3] == ["uv", "tool", "install"]
    return pip_install(words[3], agent.tried.version)


def call(name: str, file: Path) -> Call:
    tool, parameter = READS[name]
    value = [{"path": str(file)}] if parameter == "files" else str(file)
    value = f"cat {file}" if parameter in ("cmd", "command") else value
    return Call(tool, parameter, value, more=DEMANDED.get(name, {}))
