"""Records a command by a recorder of a plugin, which writes the tables itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .. import plugins
from ..errors import CurvescopeError
from ..hardware.host import describe_host, describe_versions
from ..masking import without_secrets
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter, open_recording
from .nvidia_tools import TOOLS


def record_by_plugin(name: str, command: Sequence[str], path: Path) -> tuple[int, dict[str, int]]:
    """Run the command by the plugin's `record(command, writer)`; what it wrote before it failed stays.

    Args:
        name: the plugin's NAME.
        command: program and arguments.
        path: folder of the recording to create.

    Returns:
        The exit code that the plugin gives, and the rows that it wrote, by table.

    Raises:
        CurvescopeError: there is no such recorder, it failed, or the recording cannot be made.
    """
    found = {plugin.module.NAME: plugin for plugin in plugins.plugins(plugins.RECORDERS)}
    if name not in found:
        known = ", ".join(["cupti", *TOOLS, *sorted(found)])
        raise CurvescopeError(f"--with {name}: there is no such recorder here; choose one of {known}.")
    plugin = found[name]
    meta = {
        "recorder": name,
        "argv": without_secrets(command),
        "host": describe_host(),
        "versions": describe_versions(),
    }
    with RecordingWriter(path, {**meta, "kind": "profile", "protocol": None}) as writer:
        try:
            code = int(plugin.module.record(command, writer))
        except CurvescopeError:
            raise
        except Exception as error:  # a stranger's code: what it raises is told in our words
            raise CurvescopeError(
                f"Recorder {name} of {plugin.package} failed ({type(error).__name__}: {error}). "
                "Report it to its authors; `--with cupti` records without it."
            ) from error
    recording = open_recording(path)
    return code, {table: recording.count_rows(table) for table in TABLES}
