"""The MCP server, asked by the client of its own package: in memory, and once over standard input and output."""

import json
import re
import shlex
import sys
from pathlib import Path

import anyio
import pytest

from curvescope import agents
from curvescope.base.errors import BackendMissingError, CurvescopeError
from curvescope.cli import COMMANDS, main

VIEWS = {"list_recordings", "verdict", "breakdown", "compare", "roofline"}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A recording of a modelled GPU, in a folder of its own."""
    path = tmp_path_factory.mktemp("runs") / "vgg"
    assert main(["model", "vgg_a", "--device", "gtx1080", "--batch", "16..64", "-o", str(path), "--json"]) == 0
    return path


@pytest.fixture
def ask(capsys, monkeypatch):
    """Call a tool through a client in memory; the commands run in this process. Returns the answer and its text."""
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

        async with Client(agents.make_server(allow_experiments, here)) as client:
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
    whole = answer_of(ask("breakdown", recording=str(run), batch=32, rows=1000)[1], most=20_000)
    assert whole["rows_left_out"] == 0
    assert sum(row["time_ms"] for row in whole["rows"]) == pytest.approx(whole["time_ms"], rel=1e-2)
    assert ask.commands == [("breakdown", "--by=kernel", "--batch=32"), ("breakdown", "--by=layer", "--batch=32")]


def test_recordings_are_compared_and_put_under_roofs(run, ask):
    compared = answer_of(ask("compare", base=str(run), other=str(run), batch=64, rows=3)[1])
    assert [line["changes"][0]["speedup"] for line in compared["steps"]] == [1, 1, 1]
    drawn = answer_of(ask("roofline", recording=str(run), by="layer", rows=3)[1])
    assert {point["bound"] for point in drawn["rows"]} <= {"memory", "compute", "neither", "unknown"}
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


def test_the_command_serves_over_standard_input_and_output(run):
    async def talk():
        from mcp import Client, StdioServerParameters, stdio_client

        server = StdioServerParameters(command=sys.executable, args=["-m", "curvescope.cli", "mcp"], cwd=run.parent)
        async with Client(stdio_client(server, errlog=sys.__stderr__)) as client:
            # A name like an option is a folder all the same.
            refused = await client.call_tool("verdict", {"recording": "--help"})
            return await client.call_tool("list_recordings", {"folder": "."}), refused

    listed, refused = anyio.run(talk)
    assert [row["path"] for row in answer_of(listed)["recordings"]] == ["vgg"]
    assert refused.is_error
    assert "--help" in refused.content[0].text


@pytest.mark.parametrize("module", ["msgspec", "json", "signal", "curvescope"])
def test_no_file_of_the_folder_that_is_read_runs(module, tmp_path, run, monkeypatch):
    (tmp_path / f"{module}.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    found = anyio.run(lambda: agents.ask_command("runs", paths=[str(run.parent)]))
    assert [row["path"] for row in found["recordings"]] == [str(run)]
    assert not (tmp_path / "ran").exists()


def test_the_skill_is_named_and_its_commands_exist():
    text = (Path(agents.__file__).with_name("SKILL.md")).read_text()
    name, description = re.match(r"---\nname: (.+)\ndescription: (.+)\n---\n", text).groups()
    assert re.fullmatch(r"[a-z-]{1,64}", name)
    assert len(description) <= 1024
    words = [shlex.split(command) for command in re.findall(r"`curvescope ([^`]+)`", text)]
    assert len(words) > 10
    for command, *rest in words:
        COMMANDS[command].build()[0].parse_args(rest)
