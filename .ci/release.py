"""Makes a version of what is committed: `make release VERSION=1.2.3` commits it, tags it and builds
its files.

Nothing is uploaded: `build/dist` is what the owner gives to PyPI, and the tag what is pushed.
`--rehearse` does the same in a clone below `build/rehearsal`, which alone is left.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {
    "curvescope/__init__.py": (r'^__version__ = ".*"$', '__version__ = "{version}"'),
    "CHANGELOG.md": (r"^## Unreleased$", "## {version} ({date})"),
    ".ci/conda/recipe.yaml": (r'^  version: "[^"]*"$', '  version: "{version}"'),
}


def main(version: str) -> None:
    """Write the version where it stands, commit and tag it.

    Args:
        version: the new version, e.g. 1.2.3 or 1.2.3rc1.
    """
    if not re.fullmatch(r"\d+\.\d+\.\d+((a|b|rc)\d+)?", version):
        raise SystemExit(f"VERSION={version}: write it as 1.2.3 or 1.2.3rc1.")
    if git("status", "--porcelain", "--untracked-files=no") or git("tag", "--list", f"v{version}"):
        raise SystemExit(f"Commit first what is not committed; v{version} must not exist yet.")
    date = datetime.datetime.now(datetime.timezone.utc).date()
    written = {}
    for name, (pattern, line) in PLACES.items():
        text, count = re.subn(
            pattern,
            line.format(version=version, date=date),
            (ROOT / name).read_text(),
            count=1,
            flags=re.MULTILINE,
        )
        if not count:
            raise SystemExit(
                f"{name} has no line {pattern}: add the changes since the last release to it."
            )
        written[ROOT / name] = text
    for path, text in written.items():
        path.write_text(text)
    git("commit", "--quiet", "--all", "--message", f"Release {version}")
    git("tag", "--annotate", "--message", f"Curvescope {version}", f"v{version}")
    print(f"committed and tagged v{version}")


def rehearse(version: str) -> None:
    """Release a version in a clone, and build and check its files there."""
    clone = ROOT / "build" / "rehearsal"
    shutil.rmtree(clone, ignore_errors=True)
    git("clone", "--quiet", "--no-hardlinks", str(ROOT), str(clone))
    identity = {"NAME": "rehearsal", "EMAIL": "rehearsal@example.org"}
    author = {
        f"GIT_{who}_{key}": value
        for who in ("AUTHOR", "COMMITTER")
        for key, value in identity.items()
    }
    environment = {**os.environ, **author}
    for script, *words in (("release.py", version), ("package.py",)):
        command = [sys.executable, str(clone / ".ci" / script), *words]
        subprocess.run(command, cwd=clone, env=environment, check=True)
    print(f"rehearsed: {clone / 'build' / 'dist'}")


def git(*words: str) -> str:
    """Output of a command of git, which has to succeed."""
    return subprocess.run(
        ["git", *words], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip()


if __name__ == "__main__":
    *options, number = sys.argv[1:] or [""]
    (rehearse if options == ["--rehearse"] else main)(number)
