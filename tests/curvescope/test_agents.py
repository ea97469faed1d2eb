"""The MCP server, asked by the client of its own package: in memory, and once over standard input
and output.
"""

import json
import re
import shlex
import sys
from pathlib import Path

import anyio
import pytest

from curvescope import agent_calls, agents
from curvescope.agent_limits import MOST_CHARACTERS, Roots, shorten_answer
from curvescope.analysis.decompose.breakdown import ROW_COLUMNS
from curvescope.analysis.roofline import POINT_COLUMNS
from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.base.grouping import BREAKDOWN_BY, COMPARE_BY, ROOFLINE_BY
from curvescope.cli import COMMANDS, main

from ..profiling.readers.made_profiles import PROFILES
from ..server_logs import vllm_start, vllm_steps, walk, with_cliff

VIEWS = {"list_recordings", "verdict", "breakdown", "compare", "roofline"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recording of a modelled GPU, in a folder of its own."""
    path = tmp_path_factory.mktemp("runs") / "vgg"
    assert (
        main(
            [
                "diagnose",
                "vgg_a",
                "--card",
                "gtx1080",
                "--batch",
                "16..64",
                "-o",
                str(path),
                "--json",
            ]
        )
        == 0
    )
    return path


@pytest.fixture
def ask(capsys, monkeypatch, tmp_path_factory):
    """Call a tool through a client in memory; the commands run in this process.

    Returns the answer and its text.
    """
    asked = []

    async def here(command, *options, paths):
        asked.append((command, *options))
        if command == "confirm":
            return {"answers": [], "curve": [], "device": None, "lost": None, **dict.fromkeys(KEPT)}
        capsys.readouterr()
        if main([command, *options, "--json", "--", *map(str, paths)]):
            raise CurvescopeError(capsys.readouterr().err)
        return json.loads(capsys.readouterr().out)

    async def call(tool, arguments, allow_experiments):
        from mcp import Client

        roots = [str(tmp_path_factory.getbasetemp()), "s3://named/job"]
        async with Client(agents.make_server(allow_experiments, here, roots)) as client:
            tools = {one.name for one in (await client.list_tools()).tools}
            return tools, await client.call_tool(tool, arguments)

    def asking(tool, allow_experiments=False, **arguments):
        return anyio.run(call, tool, arguments, allow_experiments)

    asking.commands = asked
    return asking


KEPT = ("recording", "headline", "modelled", "complete", "network")


def answer_of(result, most=8000):
    """The answer, which has at most so many characters."""
    assert not result.is_error, result.content
    assert len(result.content[0].text) < most
    return result.structured_content


def test_an_agent_finds_a_recording_and_reads_its_verdict(run, ask):
    tools, result = ask("list_recordings", folder=str(run.parent))
    assert tools == VIEWS
    listed = answer_of(result)
    assert [row["path"] for row in listed["recordings"]] == [str(run)]
    assert listed["recordings_left_out"] == 0
    verdict = answer_of(ask("verdict", recording=str(run))[1])
    assert verdict["modelled"]
    assert verdict["headline"].startswith("vgg_a (modelled): ")
    assert [point["batch"] for point in verdict["curve"]] == [16, 32, 64]
    assert {"sentence", "cause", "verdict", "remedy"} <= set(verdict["answers"][0])


def test_rows_that_are_not_shown_are_counted(run, ask):
    shown = answer_of(ask("breakdown", recording=str(run), by="kernel", batch=32, rows=2)[1])
    assert len(shown["rows"]) == 2
    assert shown["rows_left_out"] > 2
    whole = answer_of(ask("breakdown", recording=str(run), batch=32, rows=1000)[1], most=22_000)
    assert whole["rows_left_out"] == 0
    assert sum(row["time_ms"] for row in whole["rows"]) == pytest.approx(whole["time_ms"], rel=1e-2)
    assert ask.commands == [
        ("breakdown", "--by=kernel", "--at=32"),
        ("breakdown", "--by=layer", "--at=32"),
    ]


def test_recordings_are_compared_and_put_under_roofs(run, ask):
    compared = answer_of(ask("compare", base=str(run), other=str(run), batch=64, rows=3)[1])
    assert [line["changes"][0]["speedup"] for line in compared["steps"]] == [1, 1, 1]
    drawn = answer_of(ask("roofline", recording=str(run), by="layer", rows=3)[1])
    assert {point["bound"] for point in drawn["rows"]} <= {
        "memory",
        "compute",
        "neither",
        "unknown",
    }
    assert drawn["roofs"]
    assert len(drawn["without_work"]) == 3
    assert drawn["without_work_left_out"] > 3


def test_experiments_run_only_where_they_are_allowed(run, ask):
    tools, refused = ask("run_experiments", recording=str(run))
    assert "run_experiments" not in tools
    assert refused.is_error
    tools, done = ask("run_experiments", allow_experiments=True, recording=str(run), seconds=30)
    assert tools == VIEWS | {"run_experiments"}
    assert answer_of(done)["answers"] == []
    assert ask.commands == [("confirm", "--experiments=30s")]
    _, refused = ask("run_experiments", allow_experiments=True, recording=str(run), seconds=10**6)
    assert "1 to 600" in refused.content[0].text


def test_what_a_command_refuses_is_said_to_the_agent(tmp_path, ask):
    _, result = ask("verdict", recording=str(tmp_path / "none"))
    assert result.is_error
    assert f"{tmp_path / 'none'}" in result.content[0].text


def test_without_the_package_the_command_says_how_to_get_it(monkeypatch, refusal_of):
    monkeypatch.setitem(sys.modules, "mcp.server.mcpserver", None)
    with pytest.raises(BackendMissingError, match="pip install"):
        agents.make_server()
    assert "curvescope[mcp]" in refusal_of("mcp")


@pytest.mark.slow
def test_the_command_serves_over_standard_input_and_output(run):
    async def talk():
        from mcp import Client, StdioServerParameters, stdio_client

        server = StdioServerParameters(
            command=sys.executable, args=["-m", "curvescope.cli", "mcp"], cwd=run.parent
        )
        async with Client(stdio_client(server, errlog=sys.__stderr__)) as client:
            # A name like an option is a folder all the same.
            refused = await client.call_tool("verdict", {"recording": "--help"})
            return await client.call_tool("list_recordings", {"folder": "."}), refused

    listed, refused = anyio.run(talk)
    assert [row["path"] for row in answer_of(listed)["recordings"]] == ["vgg"]
    assert refused.is_error
    assert "--help" in refused.content[0].text


@pytest.mark.slow
@pytest.mark.parametrize("module", ["msgspec", "json", "signal", "curvescope"])
def test_no_file_of_the_folder_that_is_read_runs(module, tmp_path, run, monkeypatch):
    (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    found = anyio.run(lambda: agent_calls.ask_command("runs", paths=[str(run.parent)]))
    assert [row["path"] for row in found["recordings"]] == [str(run)]
    assert not (tmp_path / "ran").exists()


OUTSIDE = "is outside what agents may read"


@pytest.mark.parametrize(
    "path",
    [
        *("/etc", "..", "../outside", "runs/../../outside", "link", "linked-part", "linked-meta"),
        "http://127.0.0.1:18099/x",
        "s3://bucket/job",
        "file:///etc",
        "s3://named/job/../other",
        "s3://named/jobs",
        "s3://named/job?x=1",
        "simplecache::http://127.0.0.1/x",
        "memory://x",
        "http:/127.0.0.1/x::y",
    ],
)
def test_nothing_outside_the_roots_is_read(path, tmp_path, monkeypatch):
    for name in ("here/runs", "here/linked-part/kernels", "here/linked-meta", "outside"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "outside" / "recording.json").write_text("{}")
    (tmp_path / "here" / "link").symlink_to(tmp_path / "outside")
    (tmp_path / "here" / "linked-meta" / "recording.json").symlink_to(
        tmp_path / "outside" / "recording.json"
    )
    (tmp_path / "here" / "linked-part" / "recording.json").write_text("{}")
    (tmp_path / "here" / "linked-part" / "kernels" / "00000.parquet").symlink_to("/etc/passwd")
    monkeypatch.chdir(tmp_path / "here")
    server = Roots(["s3://named/job"])
    with pytest.raises(CurvescopeError, match=OUTSIDE):
        server.check(path)


@pytest.mark.parametrize(
    ("tool", "paths"),
    [
        ("list_recordings", {"folder": "/etc"}),
        ("compare", {"base": "", "other": "/etc"}),
        *(
            (tool, {"recording": "/etc"})
            for tool in ("verdict", "breakdown", "roofline", "run_experiments")
        ),
    ],
)
def test_every_tool_refuses_what_is_outside(tool, paths, run, ask):
    arguments = {name: path or str(run) for name, path in paths.items()}
    _, refused = ask(tool, allow_experiments=True, **arguments)
    assert refused.is_error
    assert OUTSIDE in refused.content[0].text
    assert ask.commands == []


def test_what_is_inside_the_roots_is_read(tmp_path, monkeypatch):
    for name in ("here/runs/one", "other/two", "third"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "recording.json").write_text("{}")
    (tmp_path / "here" / "other").symlink_to(tmp_path / "other")
    monkeypatch.chdir(tmp_path / "here")
    roots = Roots([str(tmp_path / "other"), "s3://named/job/"])
    for path in (
        ".",
        "runs",
        "runs/one",
        "runs/new",
        "other/two",
        str(tmp_path / "other"),
        "--help",
    ):
        roots.check(path)
    for url in ("s3://named/job", "s3://named/job/rank0", "s3://named/job/rank=0"):
        roots.check(url)


def test_tools_offer_the_rows_that_commands_and_views_have():
    async def schemas():
        from mcp import Client

        async with Client(agents.make_server()) as client:
            return {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}

    views = {"breakdown": BREAKDOWN_BY, "compare": COMPARE_BY, "roofline": ROOFLINE_BY}
    asked = anyio.run(schemas)
    for name, choices in views.items():
        by = asked[name]["properties"]["by"]
        offered = by["enum"] if "enum" in by else by["anyOf"][0]["enum"]
        (action,) = (a for a in COMMANDS[name].build()[0]._actions if a.dest == "by")
        assert tuple(offered) == tuple(action.choices) == choices
    assert set(ROW_COLUMNS) == set(BREAKDOWN_BY)
    assert set(POINT_COLUMNS) == set(ROOFLINE_BY)


def test_a_root_must_be_a_folder(tmp_path, refusal_of):
    assert "is no folder" in refusal_of("mcp", tmp_path / "none")


@pytest.mark.slow
def test_answers_are_bounded_whatever_names_and_lists_a_recording_has():
    name = "void kernel<float, 4>(float *, int) " * 2000
    row = {"label": name, "time_ms": 1.23456789, "reasons": [name] * 300}
    answer = shorten_answer(
        {"schema": "x", "rows": [row] * 5000, "rows_left_out": 7, "sentence": name, name: 1}
    )
    assert len(json.dumps(answer)) <= MOST_CHARACTERS
    assert answer["rows_left_out"] == 7 + 5000 - len(answer["rows"])
    assert answer["rows"][0]["label"].endswith("(float *, int) "[-10:])
    assert len(answer["rows"][0]["label"]) == 120
    assert answer["rows"][0]["time_ms"] == 1.235
    assert "schema" not in answer
    with pytest.raises(CurvescopeError, match="too long"):
        shorten_answer({str(i): {str(k): name for k in range(100)} for i in range(100)})


def test_no_number_of_rows_makes_a_long_answer(run, ask):
    whole = answer_of(
        ask("breakdown", recording=str(run), by="kernel", batch=32, rows=10**9)[1], most=60_000
    )
    assert len(whole["rows"]) <= 100


def test_the_skill_is_named_and_its_commands_exist():
    text = (Path(agents.__file__).with_name("SKILL.md")).read_text()
    name, description = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n", text).groups()
    assert re.fullmatch(r"[a-z-]{1,64}", name)
    assert len(description) <= 1024
    words = [shlex.split(command) for command in re.findall(r"`curvescope ([^`]+)`", text)]
    assert len(words) > 10
    for command, *rest in words:
        COMMANDS[command].build()[0].parse_args(rest)


def test_the_log_of_a_server_is_answered_as_explain_answers(tmp_path, ask):
    log = tmp_path / "server.log"
    log.write_text(vllm_start(100) + vllm_steps(walk(80, 100, 3000), with_cliff(96, 4.0)))
    answer = answer_of(ask("verdict", recording=str(log))[1])
    assert answer["headline"].startswith(
        "Batches 97 to 100 leave the graph that was captured up to 96: +"
    )
    assert answer["bends"][0]["advice"] == "Capture 100:"
    assert answer["verdict"] == "suggested"
    assert len(answer["curve_ms"]) == 21
    for tool in ("breakdown", "roofline"):
        _, refused = ask(tool, recording=str(log))
        assert "it has times of steps and no kernels" in refused.content[0].text


@pytest.mark.slow
def test_a_profile_of_one_size_is_answered_with_what_is_suggested(tmp_path, ask):
    profile = tmp_path / "trace.json.gz"
    profile.write_bytes((PROFILES / "hta_alexnet_trace.json.gz").read_bytes())
    answer = answer_of(ask("verdict", recording=str(profile))[1])
    assert "99% is idle" in answer["headline"]
    assert answer["suggested"][0]["cause"] == "work of a first use"
    assert answer["gaps"][0]["reason"] == "host in cudaFree"
    assert answer["families_ms"][0] == ["copy and layout", 55.79]


@pytest.mark.slow
@pytest.mark.parametrize("path", ["x" * 10_000, "x/" * 5_000, "y" * 300])
def test_a_path_that_is_too_long_is_refused_with_a_sentence(path, run, ask):
    _, refused = ask("verdict", recording=path)
    assert refused.is_error
    assert len(refused.content[0].text) < 400
    assert re.search(
        "is no path|contains no|no such|no recording|cannot be", refused.content[0].text
    )


HIDING = (
    "\U000e0049\U000e0067",
    "\u200b",
    "\u200d",
    "\ufe0f",
    "\U000e0100",
    "\u2062",
    "\u3164",
    "\ufeff",
)


@pytest.mark.parametrize("hidden", HIDING)
def test_nothing_that_nobody_sees_reaches_an_agent(hidden, run, ask):
    answer = shorten_answer({"headline": f"a{hidden}b", f"c{hidden}": [{"name": f"d{hidden}"}]})
    assert hidden[0] not in json.dumps(answer, ensure_ascii=False)
    _, refused = ask("verdict", recording=str(run / f"x{hidden}"))
    assert refused.is_error
    assert hidden[0] not in refused.content[0].text


@pytest.mark.slow
def test_a_log_with_many_sizes_has_an_answer_of_bounded_size(tmp_path, ask):
    log = tmp_path / "server.log"
    climb = [size for size in range(1, 1500, 4) for _ in range(8)]
    log.write_text(vllm_start(1500) + vllm_steps(climb, with_cliff(2000, 0)))
    answer = answer_of(ask("verdict", recording=str(log))[1])
    assert answer["curve_ms_left_out"] > 0
