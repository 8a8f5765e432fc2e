"""Run the fuzz targets: `python -m fuzz [TARGET …] [--seconds N]`. Exit with 1 if one of them fails.

The targets share the time. Each runs in a separate process, because the fuzzer ends its process. The corpus is stored
in `.cache/fuzz`, and the next run continues from it. A failing input is stored in `tests/cases/fuzz/TARGET`. Fix the
bug and commit the input; the ordinary tests then repeat it.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[1]
CASES = ROOT / "tests" / "cases"
CORPUS = ROOT / ".cache" / "fuzz"
TARGET_NAMES = ("reply", "stream", "request", "messages", "responses", "ollama", "gemini", "profile", "policies")
MAX_INPUT_SECONDS = 30
"""Time limit of one input in seconds; a slower input is a failure."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Fuzz VTC, guided by coverage.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"{', '.join(TARGET_NAMES)} (all)")
    parser.add_argument("--seconds", type=int, default=60, help="time for all targets together (%(default)s)")
    parser.add_argument("--run", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    targets = options.targets or list(TARGET_NAMES)
    if unknown := set(targets) - set(TARGET_NAMES):
        parser.error(f"there is no target {min(unknown)!r}; there are {', '.join(TARGET_NAMES)}")
    seconds = max(1, options.seconds // len(targets))
    if options.run:
        run_target(targets[0], seconds)
    command = [sys.executable, "-m", "fuzz", "--run", "--seconds", str(seconds)]
    failed = [target for target in targets if subprocess.run([*command, target], cwd=ROOT).returncode]
    if failed:
        sys.exit(f"failed: {', '.join(failed)}; the failing inputs are in {CASES / 'fuzz'}")
    print(f"no failure in {seconds} s each of {', '.join(targets)}")


def run_target(target: str, seconds: int) -> None:
    """Run one target in this process; the fuzzer ends the process."""
    try:
        import atheris
    except ImportError:
        sys.exit(
            "the fuzzer is not installed: run `make fuzz`, or pip install -e '.[fuzz]' (it has wheels for Linux only)"
        )
    # Only modules that are imported here are instrumented.
    with atheris.instrument_imports(include=["vtc"]):
        from fuzz import targets
        from vtc.dialects.bounded_cache import COMPILED_PATTERNS

    # Targets alternate between all dialects; recompiling their patterns would take nine tenths of the time.
    COMPILED_PATTERNS.max_bytes = 256 << 20

    corpus, cases = CORPUS / target, CASES / "fuzz" / target
    for directory in (corpus, cases):
        directory.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(make_seeds(target)):
        (corpus / f"seed-{number:04}").write_bytes(data)
    words = CORPUS / f"{target}.dict"
    words.write_text("".join(f'"{_escape_word(word)}"\n' for word in list_words()))
    arguments = [
        f"-max_total_time={seconds}",
        f"-timeout={MAX_INPUT_SECONDS}",
        f"-report_slow_units={MAX_INPUT_SECONDS}",
        "-rss_limit_mb=2048",
        "-max_len=8192",  # nearly twice the longest bound of the reader
        "-print_final_stats=1",
        "-verbosity=0",
        f"-dict={words}",
        f"-artifact_prefix={cases}{os.sep}",
    ]
    atheris.Setup([f"fuzz {target}", *arguments, str(corpus), str(cases)], targets.TARGETS[target])
    atheris.Fuzz()


def make_seeds(target: str) -> Iterator[bytes]:
    """Yield the initial corpus, from the recorded cases and the profiles."""
    if target == "profile":
        for file in sorted((ROOT / "profiles").rglob("*.yaml")):
            yield file.read_bytes()
        return
    from fuzz import targets
    from tests.apis import chat, responses
    from tests.apis.replies import REPLIES
    from tests.apis.shapes import SHAPES

    replies = [_encode_text(text) for text in [*_read_case_texts(CASES / "reading"), *_make_rule_texts()]]
    for number, text in enumerate(replies):
        if target == "reply":
            yield bytes([number % len(targets.SETTINGS), 3 + 16 * (number % 3 == 0)]) + text
    if target == "stream":
        for number, text in enumerate(replies[::5]):
            yield bytes([number % len(targets.SETTINGS), 7]) + b"".join(chat.make_stream(text.decode(errors="replace")))
    if target in targets.OTHER_APIS:
        shape = SHAPES[targets.OTHER_APIS[target].name]
        for number, text in enumerate(replies[::5]):
            frames = shape.streamed(*text.decode(errors="replace").split(" "))
            yield bytes([number % len(targets.SETTINGS), 7]) + b"".join(frames)
        for number, body in enumerate(body for name, body in REPLIES.items() if name.startswith(f"{target}/")):
            yield bytes([number, 7]) + body
        fields = {
            "messages": {"system": "Be brief."},
            "responses": {"instructions": "Be.", "tools": [responses.namespace("fs", responses.LIST)]},
        }
        for number in range(len(targets.SETTINGS)):
            request = shape.request(**shape.history, **fields.get(target, {}))
            yield bytes([number, 8]) + chat.encode_json(request)
            yield bytes([number, 0]) + chat.encode_json(shape.whole("a"))
    if target == "policies":
        from tests.attacks.seeds import SEEDS

        for number, (body, whole) in enumerate(SEEDS):
            for client in range(6):  # as `fuzz.policies.open_session` numbers them
                yield bytes([number % 4 + 16 * client, (number + client) % 6 + 8 * whole]) + body
    if target == "request":
        prompts = [file.read_bytes() for file in sorted((CASES / "prompts").glob("*.md"))]
        for number in range(len(targets.SETTINGS)):
            yield bytes([number, 1 + 16]) + prompts[number % len(prompts)]
            yield bytes([number, 2 + 16]) + replies[number % len(replies)] + b"\0[read_file for 'a'] Result:\nok"
            yield bytes([number, 3]) + b"Reads {{ 7 * 7 }} {% raw %}"
            yield bytes([number, 4]) + b'{"edits": [{"a": 1}], "count": 2}\0<tool_response>'
            yield bytes([number, 0]) + chat.encode_json(chat.request(tools=[chat.READ]))


@cache
def _read_case_texts(directory: Path) -> Sequence[str]:
    """Return the texts of the recorded cases in a directory."""
    from tests.dialects.material import plain

    return [case["text"] for file in sorted(directory.glob("*.yaml")) for case in plain(file.read_text("utf-8"))]


def _make_rule_texts() -> Iterator[str]:
    """Yield calls next to text that the reader's rules depend on: quotes, closing tags and long runs."""
    from tests.exchanges import WRITTEN
    from tests.rules import LONG, RULES

    for number, rule in enumerate([*RULES, *LONG]):
        call, other = WRITTEN[number % len(WRITTEN)], RULES[number * 7 % len(RULES)]
        yield f"Look: {rule}{call}{other}\n{other}{call}{rule}"


def _encode_text(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def list_words() -> list[str]:
    """List words that random bytes are unlikely to form.

    They are the markup of every dialect, the words of the reader's rules, and the keys of profiles and requests.
    """
    from tests.rules import QUOTES, TAGS, WORDS
    from vtc.profiles import builtin_directory, load_profiles
    from vtc.profiles.loader import KINDS

    dialects = load_profiles([builtin_directory()]).dialects.values()
    patterns = [text for dialect in dialects for text in (*dialect.calls, *dialect.params, *dialect.sections)]
    words = {piece for text in patterns for piece in re.split(r"(?<=>)|(?=<)|[{}]", text) if 1 < len(piece) < 100}
    keys = {f"{key}: " for kind in KINDS.values() for key in kind.__struct_fields__}
    fields = {f'"{key}":' for key in ("choices", "delta", "content", "tool_calls", "index", "finish_reason", "role")}
    rules = {*QUOTES, *TAGS, *WORDS}
    return sorted(
        words | keys | fields | rules | {"data: ", "[DONE]", "\r\n\r\n", "read", "filePath", "</think>", "```json\n"}
    )


def _escape_word(word: str) -> str:
    return "".join(f"\\x{byte:02X}" if not 32 < byte < 127 or byte in b'"\\' else chr(byte) for byte in word.encode())


if __name__ == "__main__":
    main()
