"""Tables of evidence that follow from no file of runs: what simulations gave, and what was measured
once.

    python benchmarks/evidence.py           the names of the tables
    python benchmarks/evidence.py NAME …    these tables, as Markdown

A script that makes tables hands them to `simulate` or `keep`; `docs/evidence_page.py` takes its
figures from them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import NamedTuple

from curvescope.base.markdown import write_markdown

TABLES = Path(__file__).parent / "results" / "tables.json"


class Table(NamedTuple):
    """A table with its origin.

    Attributes:
        made_by: command that makes it, or the commit whose script made it.
        date: day of the measurement.
        says: what a row is.
        sweeps: simulated sweeps or experiments of each kind; None where nothing was simulated.
        head: headers of the columns.
        rows: cells of each row, as they are shown.
    """

    made_by: str
    date: str
    says: str
    sweeps: int | None
    head: list[str]
    rows: list[list[str]]

    def column(self, header: str) -> list[str]:
        """The cells below a header."""
        place = self.head.index(header)
        return [row[place] for row in self.rows]

    def lines(self) -> list[str]:
        """The table as Markdown."""
        return markdown(self.head, self.rows)


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Lines of a table in Markdown."""
    return write_markdown(head, rows, words=len(head)).splitlines()


def read_tables() -> dict[str, Table]:
    """All tables, by name."""
    return {name: Table(**entry) for name, entry in json.loads(TABLES.read_text()).items()}


def keep(
    name: str, head: Sequence[str], rows: Sequence[Sequence[str]], sweeps: int | None = None
) -> None:
    """Replace the cells of a table, and its date by today's; what it says stays."""
    tables = read_tables()
    cells = list(map(list, rows))
    tables[name] = tables[name]._replace(
        date=str(date.today()), sweeps=sweeps, head=list(head), rows=cells
    )
    entries = [f" {json.dumps(name)}: {_entry(table)}" for name, table in tables.items()]
    TABLES.write_text("{\n" + ",\n".join(entries) + "\n}\n")


def _entry(table: Table) -> str:
    """A table as JSON, with a line for each of its rows."""
    facts = table._asdict()
    rows = facts.pop("rows")
    lines = [f"  {json.dumps(key)}: {_json(fact)},\n" for key, fact in facts.items()]
    cells = ",\n".join(f"   {_json(row)}" for row in rows)
    return "{\n" + "".join(lines) + f'  "rows": [\n{cells}\n  ]\n }}'


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


Named = tuple[str, Sequence[str], Sequence[Sequence[str]]]


def simulate(says: str | None, sweeps: int, results: Callable[[int], Iterator[Named]]) -> None:
    """Run simulations and print their tables; `--write` keeps them.

    Arguments: `results` takes the number of simulations of each kind, and gives the name, the
    header and the rows of each table.
    """
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument("--write", action="store_true", help=f"keep the tables in {TABLES.name}")
    parser.add_argument(
        "--sweeps", type=int, default=sweeps, help="of each kind (default %(default)s)"
    )
    args = parser.parse_args()
    for name, head, rows in results(args.sweeps):
        print(f"{name}\n", *markdown(head, rows), "", sep="\n", flush=True)
        if args.write:
            keep(name, head, rows, args.sweeps)


def main() -> None:
    """Print the tables that are asked for."""
    tables = read_tables()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    names = parser.parse_args().names
    if unknown := set(names) - set(tables):
        parser.error(f"{', '.join(sorted(unknown))}: choose from {', '.join(tables)}")
    for name in names:
        table = tables[name]
        each = f", {table.sweeps} of each kind" if table.sweeps else ""
        print(f"{name}: {table.made_by}, {table.date}{each}", table.says, "", sep="\n")
        print(*table.lines(), "", sep="\n")
    if not names:
        for name, table in tables.items():
            print(f"{name:24} {table.date}  {table.made_by}")


if __name__ == "__main__":
    main()
