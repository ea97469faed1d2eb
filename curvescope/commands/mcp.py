"""Answer questions of agents about recordings: an MCP server on standard input and output.

Its tools list recordings and give the verdict, the breakdown, a comparison or the roofline of them,
and change nothing. With --allow-experiments a tool runs experiments on this machine and adds them
to the recording. It reads the folder that it is started in, the folders and URLs named here, and
nothing else; `pip install 'curvescope[mcp]'` installs its package. Start it as `curvescope mcp`:
`python -m` runs Python files of the folder.
"""

from __future__ import annotations

import argparse
import sys


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "roots", nargs="*", metavar="ROOT", help="another folder, or a URL, that agents may read"
    )
    parser.add_argument(
        "--allow-experiments",
        action="store_true",
        help="let agents run experiments on this machine (`confirm`)",
    )


def run(args: argparse.Namespace) -> int:
    from ..agent_calls import serve
    from ..agents import make_server

    server = make_server(args.allow_experiments, roots=args.roots)
    if sys.stdin.isatty():
        print(
            "curvescope: an agent starts this command and talks with it here; Ctrl-C ends it.",
            file=sys.stderr,
        )
    serve(server)
    return 0
