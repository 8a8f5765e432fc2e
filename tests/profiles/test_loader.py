"""Profile files as a user writes them: which load, which take precedence, and every message as a whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from vtc.profiles import ProfileError, Profiles, Source, builtin_directory, load_profiles

DIALECT = 'kind: dialect\nname: {name}\ncall: "<call>{{json}}</call>"\n'


def write(directory: Path, **files: str) -> Path:
    for name, text in files.items():
        file = directory / f"{name}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return directory


def problems_of(*directories: Path) -> list[str]:
    with pytest.raises(ProfileError) as caught:
        load_profiles(directories)
    return str(caught.value).splitlines()


def test_the_built_in_profiles_load() -> None:
    profiles = load_profiles([builtin_directory()])
    assert {"openai-sdk", "opencode", "openclaw"} <= profiles.clients.keys()
    assert {"qwen2.5", "qwen3", "qwen3-coder", "hermes"} <= profiles.models.keys()
    assert {"tag", "hermes"} <= profiles.dialects.keys()
    assert all(source.builtin for source in profiles.sources.values())


def test_every_yaml_file_below_the_directory_is_read_and_each_document_in_it(tmp_path: Path) -> None:
    write(tmp_path, a="kind: client\nname: a\nmatch: {}\n---\nkind: client\nname: b\nmatch: {}\n")
    (tmp_path / "deep" / "er").mkdir(parents=True)
    (tmp_path / "deep" / "er" / "c.yml").write_text("kind: client\nname: c\nmatch: {}\n")
    (tmp_path / "notes.txt").write_text("kind: nonsense")
    (tmp_path / ".#a.yaml").write_text("kind: an editor's lock file")
    profiles = load_profiles([tmp_path])
    assert list(profiles.clients) == ["a", "b", "c"]
    assert profiles.sources["client", "b"] == Source(tmp_path / "a.yaml", 6, builtin=False)
    assert str(profiles.sources["client", "b"]) == f"{tmp_path}/a.yaml:6"


def test_a_later_directory_wins_by_kind_and_name(tmp_path: Path) -> None:
    first = write(
        tmp_path / "first",
        client="kind: client\nname: x\nmatch: {}\ntool_protocol: text\n",
        model="kind: model\nname: x\nmatch: {}\n",
        dialect=DIALECT.format(name="x"),
    )
    second = write(tmp_path / "second", mine="kind: client\nname: x\nmatch: {}\ntool_protocol: native\n")
    profiles = load_profiles([first, second])
    assert profiles.clients["x"].tool_protocol == "native"
    assert profiles.sources["client", "x"].path == second / "mine.yaml"
    assert profiles.sources["model", "x"].path == first / "model.yaml"
    assert profiles.sources["dialect", "x"].path == first / "dialect.yaml"


def test_two_of_one_name_in_one_directory(tmp_path: Path) -> None:
    write(tmp_path, a="kind: client\nname: x\nmatch: {}\n", b="kind: client\nmatch: {}\nname: x\n")
    assert problems_of(tmp_path) == [
        f"{tmp_path}/b.yaml:3: name: client 'x' is already defined at {tmp_path}/a.yaml:2; "
        "rename or remove one of the two"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("kind: modle\nname: x\n", '1: kind: "modle" is no kind of profile; write `kind: client`, `kind: dialect`, '
         "`kind: model`, `kind: policy`, `kind: server` or `kind: agent` (did you mean 'model'?)"),
        ("# mine\nname: x\n",
         "2: kind: missing; write `kind: client`, `kind: dialect`, `kind: model`, `kind: policy`, "
         "`kind: server` or `kind: agent`"),
        ("- kind: model\n", "1: a profile is a mapping; begin it with `kind: …` and `name: …`"),
        ("kind: client\nname: x\n", "1: match: missing; add `match: …`"),
        ("kind: client\nname: x\nmatch:\n", "3: match: must be a mapping, not null"),
        ("kind: client\nname: x\nmatch: {}\ndialekt: tag\n", "4: dialekt: unknown key; known here are call_gap, "
         "deliver, description, dialect, extra_calls, final_call, guards, kind, known_parameters, known_tools, match, "
         "max_calls, name, priority, response, tool_protocol and tool_sections "
         "(did you mean 'dialect'?)"),
        ("kind: client\nname: x\nmatch:\n  modle: a\n", "4: match.modle: unknown key; known here are body, header, "
         "host, model, path and user_agent (did you mean 'model'?)"),
        ("kind: model\nname: x\nmatch:\n  model: []\n",
         "4: match.model: must not be empty; write a value, or remove the key"),
        ("kind: model\nname: x\nmatch: {}\nmax_calls: 0\n", "4: max_calls: must be 1 or more, not 0"),
        ("kind: model\nname: x\nmatch: {}\ndialect: hermse\n",
         "4: dialect: there is no dialect 'hermse' (did you mean 'hermes'?); `vtc profiles` lists all"),
        ("kind: model\nname: x\nmatch: {}\naccept:\n- tag\n- nope\n",
         "6: accept[1]: there is no dialect 'nope'; `vtc profiles` lists all"),
        ("kind: client\nname: x\nmatch: {}\ndialect: nope\n",
         "4: dialect: there is no dialect 'nope'; `vtc profiles` lists all"),
    ],
)  # fmt: skip
def test_problem_has_line_and_remedy(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, dialects=DIALECT.format(name="tag") + "---\n" + DIALECT.format(name="hermes"), x=text)
    assert problems_of(tmp_path) == [f"{tmp_path}/x.yaml:{problem}"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('call: "<x>{nme}</x>"', "4: call: '<x>{nme}</x>': {nme} is not a placeholder here"),
        ("call: {json}", "4: call: must be a list or a text, not a mapping; put it in quotes"),
        ('call: "{json}"\nprompt: |\n  {% for x %}', "5: prompt: line 1 of the template: expected token 'in'"),
    ],
)  # fmt: skip
def test_a_dialect_that_makes_no_sense(tmp_path: Path, text: str, problem: str) -> None:
    write(tmp_path, x=f"# a dialect\nkind: dialect\nname: x\n{text}\n")
    [line] = problems_of(tmp_path)
    assert line.startswith(f"{tmp_path}/x.yaml:{problem}")


def test_a_dialect_with_a_problem_is_not_also_missing(tmp_path: Path) -> None:
    write(
        tmp_path,
        a='kind: dialect\nname: x\ncall: "{json}"\nframe: odd\n',
        b="kind: client\nname: c\nmatch: {}\ndialect: x\n",
    )
    assert [line.partition(" ")[0] for line in problems_of(tmp_path)] == [f"{tmp_path}/a.yaml:4:"]


def test_a_file_that_cannot_be_read_makes_no_dialect_missing(tmp_path: Path) -> None:
    write(tmp_path, a='kind: dialect\nname: "x\n', b="kind: client\nname: c\nmatch: {}\ndialect: x\n")
    assert [line.partition(" ")[0] for line in problems_of(tmp_path)] == [f"{tmp_path}/a.yaml:3:"]


def test_a_user_profile_names_a_dialect_of_another_directory(tmp_path: Path) -> None:
    first = write(tmp_path / "first", d=DIALECT.format(name="mine"))
    second = write(tmp_path / "second", m="kind: model\nname: m\nmatch: {}\naccept: [mine]\n")
    assert load_profiles([second, first]).models["m"].accept == ("mine",)


def test_every_problem_of_every_file_is_reported_at_once(tmp_path: Path) -> None:
    first = write(tmp_path / "1", a="kind: x\n", b="kind: model\nname: m\nmatch: {}\ntools: x\nmore: y\n")
    second = write(tmp_path / "2", c="a: [\n", d="kind: client\nname: c\nmatch: {}\n")
    problems = problems_of(first, second, tmp_path / "3")
    assert [line.partition(" ")[0].removeprefix(f"{tmp_path}/") for line in problems] == [
        *("1/a.yaml:1:", "1/b.yaml:4:", "1/b.yaml:5:", "2/c.yaml:2:", "3:")
    ]
    assert problems[-1] == f"{tmp_path}/3: no such directory; create it or correct the path"


def test_no_directories_give_no_profiles() -> None:
    assert load_profiles([]) == Profiles(
        clients={}, models={}, servers={}, dialects={}, policies={}, agents={}, sources={}
    )


POLICY = "kind: policy\nname: x\nmatch: {}\nguards:\n"


@pytest.mark.parametrize(
    ("guards", "problem"),
    [
        (
            f"  content:\n  - pattern: '{'(' * 3000}'\n",
            f"6: guards.content[0].pattern: '{'(' * 3000}' is not a regular expression: maximum recursion depth",
        ),
        ("  denied_tools: ['/(/']\n", "5: guards.denied_tools[0]: '/(/' is not a regular expression: missing )"),
        ("  denied: [a]\n", "5: guards.denied: unknown key; known here are allowed_tools,"),
        (
            "  on_denied: stear\n",
            '5: guards.on_denied: must be drop, steer or text, not "stear" (did',
        ),
        (
            "  reactors:\n  - name: a\n    then: {tag: t}\n  - name: b\n    then: {}\n",
            "8: guards.reactors[1]: ",
        ),
        (
            "  reactors:\n  - name: a\n    when:\n      arguments: {'a[': x}\n    then: {tag: t}\n",
            "8: guards.reactors[0].when.arguments.a[: 'a[' is not a JMESPath: ",
        ),
        ("  content:\n  - pattern: x*\n", "6: guards.content[0].pattern: 'x*' matches empty text"),
        ("  loop: {repeated_calls: 0}\n", "5: guards.loop.repeated_calls: must be 1 or more, not 0"),
    ],
)
def test_a_policy_that_makes_no_sense(guards: str, problem: str, tmp_path: Path) -> None:
    write(tmp_path, x=POLICY + guards)
    (line,) = problems_of(tmp_path)
    assert line.startswith(f"{tmp_path}/x.yaml:{problem}")


def test_every_mistake_of_a_policy_is_reported_at_once(tmp_path: Path) -> None:
    reactors = """
  reactors:
  - name: a
    when:
      tools: [b, '/[/']
      arguments: {'a[': x, b: '(', c: {matches: '('}}
    then: {replace: [{argument: a, pattern: '('}]}
"""
    content = "  content: [{pattern: '('}, {pattern: 'x*'}]\n"
    write(tmp_path, x=POLICY + "  allowed_tools: '/(/'\n  denied_tools: [a, '/)/']" + reactors + content)
    problems = [line.removeprefix(f"{tmp_path}/x.yaml:").partition(" ") for line in problems_of(tmp_path)]
    assert sorted(key for _, _, key in ((line, sep, rest.partition(": ")[0]) for line, sep, rest in problems)) == [
        "guards.allowed_tools",
        "guards.content[0].pattern",
        "guards.content[1].pattern",
        "guards.denied_tools[1]",
        "guards.reactors[0].then.replace[0].pattern",
        "guards.reactors[0].when.arguments.a[",
        "guards.reactors[0].when.arguments.b",
        "guards.reactors[0].when.arguments.c.matches",
        "guards.reactors[0].when.tools[1]",
    ]


def test_every_mistake_of_a_dialect_is_reported_at_once(tmp_path: Path) -> None:
    write(tmp_path, x="kind: dialect\nname: x\ncall: '{jso}'\nsection: x\nprompt: '{% if %}'\nresult_start: '('\n")
    problems = [line.removeprefix(f"{tmp_path}/x.yaml:").partition(": ")[0] for line in problems_of(tmp_path)]
    assert problems == ["3", "4", "5", "6"]


def test_invalid_unicode_is_reported_without_an_internal_error(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text('kind: model\nname: x\nmatch: {}\ndialect: "\\uD800"\n')
    with pytest.raises(ProfileError, match=r"x\.yaml:4: dialect: .* are halves of characters"):
        load_profiles([tmp_path])


def test_the_answer_itself_is_no_field_to_drop(tmp_path: Path) -> None:
    write(tmp_path, x="kind: policy\nname: x\nmatch: {}\nresponse:\n  drop: [x, content]\n")
    (line,) = problems_of(tmp_path)
    assert line.startswith(f"{tmp_path}/x.yaml:4: response: drop: 'content' is the answer itself")


@pytest.mark.parametrize(
    "flag", ["x-api-key", "authorization", "anthropic-version", "anthropic-beta.", "x-beta.y", "a"]
)
def test_of_headers_that_list_no_flags_no_profile_drops_anything(flag: str, tmp_path: Path) -> None:
    write(tmp_path, x=f"kind: server\nname: x\nmatch: {{}}\nrequest:\n  drop_flags: [anthropic-beta.x-1, '{flag}']\n")
    (line,) = problems_of(tmp_path)
    assert line.startswith(f"{tmp_path}/x.yaml:5: request.drop_flags[1]: ")


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("markers: ['{name}<|message|>']", "markers: '{name}<|message|>' must begin with literal text"),
        ("markers: ['<|to={tool}|>']", "markers: '<|to={tool}|>': {tool} is not a placeholder here; use {name}"),
        ("answer: {open: ['<a{']}", "answer: '<a{': "),
    ],
)
def test_a_marker_begins_with_text_and_holds_at_most_names(tmp_path: Path, key: str, problem: str) -> None:
    write(tmp_path, x=f"kind: model\nname: x\nmatch: {{model: x}}\n{key}\n")
    (line,) = problems_of(tmp_path)
    assert problem in line


def test_a_file_may_be_named_and_examples_hold_only_then(tmp_path: Path) -> None:
    examples = write(tmp_path / "examples", p=POLICY + "  denied_tools: a\n")
    assert load_profiles([tmp_path]).policies == {}
    assert sorted(load_profiles([examples]).policies) == sorted(load_profiles([examples / "p.yaml"]).policies) == ["x"]
    assert load_profiles([builtin_directory()]).policies == {}
