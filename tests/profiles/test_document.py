"""YAML as data with line numbers, and rejected YAML."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from vtc.profiles import ProfileError, builtin_directory, document, loader
from vtc.profiles.document import read_documents


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "x.yaml"


def problems_of(file: Path, text: str | bytes) -> list[str]:
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    _, problems = read_documents(file)
    return [str(problem).removeprefix(f"{file.parent}/") for problem in problems]


def test_every_key_and_item_knows_its_line(file: Path) -> None:
    file.write_text("# first\na: 1\nb:\n  - x\n  - {c: y}\n---\nd: 2\n")
    first, second = read_documents(file)[0]
    assert first.value == {"a": 1, "b": ["x", {"c": "y"}]}
    assert first.lines == {(): 2, ("a",): 2, ("b",): 3, ("b", 0): 4, ("b", 1): 5, ("b", 1, "c"): 5}
    assert second.value == {"d": 2}
    assert second.lines == {(): 7, ("d",): 7}


def test_missing_key_is_reported_at_its_parent(file: Path) -> None:
    file.write_text("a: 1\nb:\n  - x\n")
    [document], _ = read_documents(file)
    assert str(document.problem(("b", 3, "c"), "gone")) == f"{file}:2: b[3].c: gone"


def test_empty_documents_are_ignored(file: Path) -> None:
    file.write_text("# only a comment\n---\n---\na: 1\n---\n# the end\n")
    documents, problems = read_documents(file)
    assert [document.value for document in documents] == [{"a": 1}]
    assert problems == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a: 2024-01-01", "2024-01-01"),
        ("a: =", "="),
        ("a: {<<: x}", {"<<": "x"}),
        ("a: null", None),
        ("a: 1.5", 1.5),
        ("a: [&x b, *x]", ["b", "b"]),
        ("\ufeffa: b", "b"),
        ("a: |\n  <x>\n  {y}\n", "<x>\n{y}\n"),
    ],
)
def test_values_are_of_jsons_types(file: Path, text: str, value: object) -> None:
    file.write_text(text, encoding="utf-8")
    documents, problems = read_documents(file)
    assert problems == []
    assert documents[0].value == {"a": value}


SYNTAX_HINT = "; check the indentation, and put texts with any of * & ! % @ ` { } [ ] # : in quotes"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a: 1\nmodel: *qwen*\n",
            "x.yaml:2: not valid YAML: expected alphabetic or numeric character, but found '*' "
            "while scanning an alias" + SYNTAX_HINT,
        ),
        (
            'a: 1\nb: "x\nc: 2\n',
            "x.yaml:4: not valid YAML: found unexpected end of stream "
            "while scanning a quoted scalar that begins on line 2" + SYNTAX_HINT,
        ),
        ("a: b: c\n", "x.yaml:1: not valid YAML: mapping values are not allowed here" + SYNTAX_HINT),
        (
            "a: 1\nb: x\x07\n",
            "x.yaml:2: not valid YAML: special characters are not allowed; remove them or write \\x…",
        ),
        (b"a: 1\nb: \xff\n", "x.yaml:2: not UTF-8; save the file as UTF-8"),
        ("a: 1\nb: 2\na: 3\n", "x.yaml:3: a: written twice, first on line 1; remove one of the two"),
        ("a:\n  1: x\n", "x.yaml:2: a: 1 is a key but no text; put it in quotes"),
        ("a:\n  ~: x\n", "x.yaml:2: a: ~ is a key but no text; put it in quotes"),
        ("[a]: x\n", "x.yaml:1: what stands before the colon is a key but no text; put it in quotes"),
        (
            "a: !!python/object/apply:os.system [x]\n",
            "x.yaml:1: a: the YAML tag !!python/object/apply:os.system is not allowed; "
            "remove it, or put the text in quotes",
        ),
        ("a: !b c\n", "x.yaml:1: a: the YAML tag !b is not allowed; remove it, or put the text in quotes"),
        ("a: !!int b\n", "x.yaml:1: a: 'b' is no int; put it in quotes"),
        ("a: .inf\n", "x.yaml:1: a: JSON has no .inf; write a number"),
        (
            'a: "\\ud83d\\ude00"\n',
            "x.yaml:1: a: \\uD800 to \\uDFFF are halves of characters; write the character itself",
        ),
        ("a: &a [*a]\n", "x.yaml:1: a: nested over 32 levels deep; flatten it"),
        ("[" * 20_000, "x.yaml:1: nested too deeply; flatten it"),
        ("#" * 300_000, "x.yaml:1: over 256 KiB; split it into several files"),
    ],
)
def test_problem_has_file_line_and_remedy(file: Path, text: str | bytes, problem: str) -> None:
    assert problems_of(file, text) == [problem]


def test_an_alias_bomb_is_refused(file: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert problems_of(file, "\n".join(lines)) == [
        "x.yaml:4: a3: over 10000 values, aliases written out; use fewer aliases"
    ]


def test_a_file_that_cannot_be_read(file: Path) -> None:
    _, [problem] = read_documents(file)
    assert str(problem) == (f"{file}:1: cannot be read: No such file or directory; check that it exists and its rights")


def test_documents_before_a_syntax_error_are_read(file: Path) -> None:
    file.write_text("a: 1\n---\nb: [\n")
    documents, problems = read_documents(file)
    assert [document.value for document in documents] == [{"a": 1}]
    assert len(problems) == 1


def test_an_error_lists_its_problems_by_file_and_line(file: Path) -> None:
    file.write_text("a: 1\nb: 2\n")
    [document], _ = read_documents(file)
    error = ProfileError(
        [
            document.problem(("b",), "second"),
            document.problem(("a",), "first"),
            document.problem(("b",), "second"),
        ]
    )
    assert str(error) == f"{file}:1: a: first\n{file}:2: b: second"
    assert len(error.problems) == 2


@given(st.text(alphabet="ab:-[]{}&*!|>#'\"\\ \n\t%@`,?=<~1.", max_size=60) | st.text(max_size=30))
def test_no_text_raises(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_bytes(text.encode("utf-8", "surrogatepass"))
    for problem in read_documents(file)[1]:
        assert str(problem).startswith(f"{file}:{problem.line}: ")


# libyaml is only faster; its result equals that of PyYAML's own parser.

TEXTS = [
    *(path.read_text("utf-8") for path in sorted(builtin_directory().rglob("*.yaml"))),
    "a:\nb: ~\nc:\n- \n- x\n- - y\n  - z\n",
    "a: |\n  x\n\n  y\nb: >-\n  folded\n  text\nc: 'it''s'\nd: \"\\u00e9\\n\"\n",
    "{a: [1, 2.5, true, null, 0x10, 1_000], b: {c: d}}\n",
    "a: &x [1]\nb: *x\n",
    "---\na: 1\n---\n---\nb: 2\n...\n",
    "# nothing\n",
    "a: 2020-01-01\nb: =\n<<: x\n",
    "é: ü\n\ttab: x\n",
    "a: b: c\n",
    "a: [1\nb: 2\n",
    "a: 'x\n",
    "a: *unknown\n",
    "a: \x01\n",
    "%YAML 9.9\n---\na: 1\n",
]


@pytest.mark.parametrize("text", TEXTS)
def test_both_parsers_read_the_same(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(text, "utf-8")
    either = document.read_documents(file)
    document._parse_documents.cache_clear()
    monkeypatch.setattr(document, "_MAX_RECURSION", 0)
    assert document.read_documents(file) == either


@pytest.mark.rest
@pytest.mark.parametrize("text", ["[" * 1200, "- " * 1200, "? " * 1200, "a: {" * 1200])
def test_deep_nesting_is_kept_from_libyaml(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "CSafeLoader", None)
    file = tmp_path / "a.yaml"
    file.write_text(text, "utf-8")
    without = document.read_documents(file)
    document._parse_documents.cache_clear()
    monkeypatch.undo()
    assert document.read_documents(file) == without
    assert without[1]


def test_builtin_documents_are_read_again_only_after_a_change(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An edit of a user's profile blocks streams only for as long as that file takes to load."""

    def write(folder: str, name: str, description: str) -> None:
        (tmp_path / folder / f"{name}.yaml").write_text(
            f"kind: client\nname: {name}\ndescription: {description}\nmatch: {{}}\n"
        )

    folders = [tmp_path / "builtin", tmp_path / "own"]
    for folder in folders:
        folder.mkdir()
        write(folder.name, folder.name, "first")
    monkeypatch.setattr(loader, "builtin_directory", lambda: folders[0])
    first = loader.load_profiles(folders)
    write("own", "own", "second")
    second = loader.load_profiles(folders)
    assert second.clients["own"].description == "second"
    assert second.clients["builtin"] is first.clients["builtin"]
    assert second.sources["client", "builtin"].builtin
    write("builtin", "builtin", "anew")
    assert loader.load_profiles(folders).clients["builtin"].description == "anew"
