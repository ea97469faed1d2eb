"""Analyse many ranks of one job together: stragglers, layers out of balance, waiting in collectives
and its causes.

Takes the folders of the ranks, the folder above them, patterns or URLs (`'s3://bucket/job/rank*/'`,
in quotes); each is a recording, or a trace of the PyTorch profiler. Every recording is reduced to
small tables that can be added, by processes on this machine or on a Dask cluster (`--scheduler`).
Unreadable recordings are listed, and the others are analysed. After Ctrl-C, the results so far are
shown.

The largest stragglers are explained against all other ranks, layer by layer;
`--explain 0-7 --against 8-15` explains the difference of other groups of ranks, `--explain node:3`
of a node.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from ... import options
from ...analysis.render import terminal
from ...base.counted import counted
from ...base.errors import CurvescopeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ...analysis.ranks.difference import RankDifference
    from ...analysis.ranks.jobs import Job, Reducer
    from ...analysis.ranks.stragglers import Ranks
    from ...analysis.ranks.tables import Reduction

_EXPLAINED = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ranks", nargs="+", metavar="WHERE", help="recordings of the ranks: folders, patterns, URLs"
    )
    parser.add_argument(
        "--scheduler", metavar="ADDRESS", help="address of a Dask scheduler, e.g. tls://host:8786"
    )
    parser.add_argument(
        "--workers",
        type=int,
        metavar="N",
        help="number of workers on this machine (default: from cores and ranks)",
    )
    parser.add_argument(
        "--explain", metavar="RANKS", help="ranks to explain, e.g. 3 or 0-7,12 or node:2"
    )
    parser.add_argument(
        "--against", metavar="RANKS", help="ranks to compare them with (default: all others)"
    )
    options.add(parser, "--all", help="show every row, not only the largest")
    options.add(parser, "--json")


def run(args: argparse.Namespace) -> int:
    from ...analysis.ranks.jobs import Reducer, find_ranks
    from ...analysis.ranks.stragglers import analyse
    from ...analysis.ranks.tables import combine
    from ...cli import EXIT_INTERRUPTED
    from ...profile_files import progress

    if args.workers is not None and args.workers < 1:
        raise CurvescopeError(f"--workers {args.workers}: at least one is needed.")
    if args.against and not args.explain:
        raise CurvescopeError("--against needs --explain, which names the ranks to compare.")
    jobs, bad = find_ranks(args.ranks)
    groups = _groups(jobs, args.explain, args.against) if jobs else []
    interrupted = False
    reduction, differences = bad, list[Any]()
    with progress() as report, Reducer(len(jobs), args.scheduler, args.workers) as reducer:
        try:
            reduction = reducer.reduce(
                jobs, lambda done: report(f"ranks {reducer.description}", done, len(jobs))
            )
            ranks = _analyse(combine([reduction, bad]), analyse)
            differences = _explain(reducer, jobs, reduction, ranks, groups)
        except KeyboardInterrupt:
            interrupted = True
            if not differences and not reduction["ranks"].num_rows:
                reduction = reducer.so_far
    if interrupted:
        if not reduction["ranks"].num_rows:
            raise KeyboardInterrupt
        ranks = analyse(combine([reduction, bad]))
    _show(args, ranks, differences, len(jobs), interrupted=interrupted)
    return EXIT_INTERRUPTED if interrupted else 0


def _analyse(reduction: Reduction, analyse: Any) -> Ranks:
    if not reduction["ranks"].num_rows:
        path, reason = reduction.unreadable[0]
        count = len(reduction.unreadable)
        raise CurvescopeError(
            f"None of {counted(count, 'recording')} could be read. The first, {path}: {reason}"
        )
    ranks: Ranks = analyse(reduction)
    return ranks


def _groups(
    jobs: Sequence[Job], explain: str | None, against: str | None
) -> list[tuple[str, list[Job]]]:
    asked = [("--explain", explain), ("--against", against)]
    groups = [(text, _choose(jobs, option, text)) for option, text in asked if text is not None]
    members = [{job.rank_id.rank for job in group} for _, group in groups]
    if len(groups) == 2 and members[0] & members[1]:
        raise CurvescopeError(
            f"--explain {explain} --against {against}: the two lists share a rank."
        )
    if groups and not against and len(groups[0][1]) == len(jobs):
        raise CurvescopeError(
            f"--explain {explain}: these are all ranks, so there are none to compare with."
        )
    return groups


def _choose(jobs: Sequence[Job], option: str, text: str) -> list[Job]:
    try:
        wanted: set[int] = set()
        if text.startswith("node:"):
            node = int(text.removeprefix("node:"))
            wanted.update(job.rank_id.rank for job in jobs if job.rank_id.node == node)
        else:
            for piece in text.split(","):
                first, _, last = piece.partition("-")
                wanted.update(range(int(first), int(last or first) + 1))
    except ValueError:
        raise CurvescopeError(
            f"{option} {text}: write ranks, e.g. 3 or 0-7,12, or a node, e.g. node:2."
        ) from None
    chosen = [job for job in jobs if job.rank_id.rank in wanted]
    if not chosen:
        first_rank, last_rank = jobs[0].rank_id.rank, jobs[-1].rank_id.rank
        raise CurvescopeError(
            f"{option} {text}: no such rank; there are {first_rank} to {last_rank}."
        )
    return chosen


def _explain(
    reducer: Reducer,
    jobs: Sequence[Job],
    reduction: Reduction,
    ranks: Ranks,
    groups: list[tuple[str, list[Job]]],
) -> list[RankDifference]:
    """The requested differences, else the largest stragglers; each group's recordings are read
    again.
    """
    from ...analysis.ranks.difference import explain_difference, group_of

    rest = "the others"
    if groups:
        own = [(_name_ranks(text), reducer.reduce(members)) for text, members in groups]
        group = group_of(*own[0])
        other = group_of(*own[1]) if len(own) > 1 else group_of(rest, reduction, less=own[0][1])
        return [explain_difference(group, other, reduction)]
    if ranks.ranks < 2:
        return []
    differences = []
    for straggler in ranks.stragglers[:_EXPLAINED]:
        own_tables = reducer.reduce([job for job in jobs if job.rank_id.rank == straggler.rank])
        steps = None if len(straggler.slow_steps) < 2 else straggler.slow_steps
        others = group_of(rest, reduction, less=own_tables)
        group = group_of(_name_ranks(str(straggler.rank)), own_tables)
        differences.append(explain_difference(group, others, reduction, steps))
    return differences


def _name_ranks(text: str) -> str:
    if text.startswith("node:"):
        return f"node {text.removeprefix('node:')}"
    return f"rank {text}" if text.isdigit() else f"ranks {text}"


def _show(
    args: argparse.Namespace,
    ranks: Ranks,
    differences: list[RankDifference],
    asked: int,
    *,
    interrupted: bool,
) -> None:
    if args.json:
        from ...analysis.render.documents import print_document
        from ...analysis.render.ranks import RanksDocument

        print_document(
            RanksDocument(
                **vars(ranks), interrupted=interrupted, asked=asked, differences=differences
            )
        )
        return

    from ...analysis.render.ranks import render_difference, render_ranks

    console = terminal.console()
    if interrupted:
        console.print(f"Interrupted: results cover {ranks.ranks} of {asked} ranks.", style="yellow")
    console.print(render_ranks(ranks, everything=args.all))
    for difference in differences:
        console.print()
        console.print(render_difference(difference, everything=args.all))
