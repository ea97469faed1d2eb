"""Calls of agents: how many run at once, their limits, and that none outlives the server, nor the
server its client.
"""

import gc
import json
import os
import subprocess
import sys
import time

import anyio
import pytest

from curvescope import agent_calls
from curvescope.agents import make_server
from curvescope.base.errors import CurvescopeError

from ..tables import ask_each

PATIENCE_S = 60  # of a busy machine


def wait_for(look, what):
    ends_s = time.monotonic() + PATIENCE_S
    while not (seen := look()):
        assert time.monotonic() < ends_s, what
        time.sleep(0.05)
    return seen


def runs(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{process}/stat") as file:
        return file.read().rpartition(")")[2].split()[0] != "Z"


async def ask_all(count, ask, answers):
    """Ask so many times at once; each answer is added as it comes."""
    from mcp import Client

    async def call(client):
        answers.append(await client.call_tool("list_recordings", {"folder": "."}))

    with anyio.fail_after(PATIENCE_S):
        async with Client(make_server(ask=ask)) as client, anyio.create_task_group() as tasks:
            for _ in range(count):
                tasks.start_soon(call, client)


def test_two_calls_run_at_once_and_the_others_wait():
    now, most, answers = 0, 0, []

    async def ask(command, *options, paths):
        nonlocal now, most
        now += 1
        most = max(most, now)
        await anyio.sleep(0.02)
        now -= 1
        return {"recordings": []}

    anyio.run(ask_all, 8, ask, answers)
    assert [answer.is_error for answer in answers] == [False] * 8
    assert most == 2


def test_a_call_beyond_those_that_wait_gets_a_sentence():
    beyond, answers = 30 - 2 - 16, []

    async def ask(command, *options, paths):
        while len(answers) < beyond:
            await anyio.sleep(0.001)
        return {"recordings": []}

    anyio.run(ask_all, 30, ask, answers)
    refused = [answer.content[0].text for answer in answers if answer.is_error]
    assert len(refused) == beyond
    assert "ask again after an answer" in refused[0]


@ask_each("starts_s", [0.0, 0.3])
def test_a_call_that_takes_too_long_is_ended(starts_s, tmp_path, monkeypatch):
    """Also one whose time is over before its process has started: nothing of it stays open, which
    pytest would report.
    """

    class Popen(subprocess.Popen):
        def __init__(self, *arguments, **options):
            super().__init__(*arguments, **options)
            time.sleep(starts_s)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    process = tmp_path / "process"
    code = f"import os, time; open({str(process)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def ask():
        with pytest.raises(CurvescopeError, match=r"`x` did not end within 0\.2 s"):
            await agent_calls.run_limited([sys.executable, "-c", code], "x", 0.2)

    anyio.run(ask)
    gc.collect()
    assert not process.exists() or not runs(int(process.read_text()))


@pytest.mark.skipif(sys.platform != "linux", reason="the limit of Linux")
def test_a_call_that_takes_too_much_memory_is_told(tmp_path, monkeypatch):
    """The limit is set in the process of the call, and what it says there is a sentence here."""
    script = tmp_path / "ask.py"
    script.write_text(
        "from curvescope import agent_calls, cli\n"
        "agent_calls._MOST_BYTES, agent_calls._THREAD_BYTES = 200 << 20, 0\n"
        "cli.exit_with = lambda *words: bytearray(400 << 20)\n"
        "agent_calls.answer('explain')\n"
    )
    line = [sys.executable, str(script)]
    code, _, err = anyio.run(agent_calls.run_limited, line, "x", PATIENCE_S)
    assert code == 1
    assert err.decode().strip().splitlines()[-1] == "MemoryError"
    monkeypatch.setattr(agent_calls, "python_command", lambda *_: line)
    with pytest.raises(CurvescopeError, match="4 GiB of memory"):
        anyio.run(lambda: agent_calls.ask_command("explain", paths=[]))


SERVER = """
import os, sys
from curvescope import agent_calls, agents
async def ask(command, *options, paths):
    code = "import os, sys, time; sys.path[:] = %r; from curvescope.base import own_process; " \\
        "own_process.end_with_parent(); open('call', 'w').write(str(os.getpid())); time.sleep(600)"
    return await agent_calls.run_limited([sys.executable, "-c", code % sys.path], "x", 600)
open("server", "w").write(str(os.getpid()))
agent_calls.serve(agents.make_server(ask=ask))
"""
STARTED = ("server", "call")  # files with the numbers of the processes
CLIENT = "import subprocess, sys; subprocess.Popen(sys.argv[1:]).wait()"
HELLO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "test", "version": "1"},
}
LINES = [
    {"id": 1, "method": "initialize", "params": HELLO},
    {"method": "notifications/initialized"},
    {
        "id": 2,
        "method": "tools/call",
        "params": {"name": "list_recordings", "arguments": {"folder": "."}},
    },
]


@pytest.fixture
def asked(tmp_path):
    """A client, the server that it started and the process of its call, which takes ten minutes."""
    (tmp_path / "server.py").write_text(SERVER)
    command = [sys.executable, "-c", CLIENT, sys.executable, str(tmp_path / "server.py")]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, cwd=tmp_path, stdin=pipe, stdout=pipe, stderr=pipe) as client:
        for line in LINES:
            client.stdin.write(json.dumps({"jsonrpc": "2.0", **line}).encode() + b"\n")
        client.stdin.flush()

        def look():
            texts = [path.read_text() for path in tmp_path.glob("*") if path.name in STARTED]
            return all(texts) and len(texts) == len(STARTED)

        wait_for(look, "the call has not begun")
        processes = [int((tmp_path / name).read_text()) for name in STARTED]
        yield client, processes
        client.kill()
        for process in filter(runs, processes):
            os.kill(process, 9)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks at /proc")
@pytest.mark.parametrize("end", ["closes its pipe", "is killed", "server is killed"])
def test_nothing_runs_on_once_the_client_is_gone(asked, end):
    """A client that is killed may leave the pipe open: another process has its end, here the
    test.
    """
    client, processes = asked
    if end == "closes its pipe":
        client.stdin.close()
    else:
        os.kill(processes[0] if end == "server is killed" else client.pid, 9)
    wait_for(lambda: not any(map(runs, processes)), end)
