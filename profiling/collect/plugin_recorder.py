"""Records a command with a plugin's recorder, which writes the tables itself."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ...base import plugins
from ...base.errors import CurvescopeError
from ...base.masking import without_secrets
from ..hardware.host import describe_environment
from ..recording.schema import TABLES
from ..recording.store import RecordingWriter, open_recording
from .nvidia_tools import TOOLS


def record_by_plugin(name: str, command: Sequence[str], path: Path) -> tuple[int, dict[str, int]]:
    """Run the command with the plugin's `record(command, writer)`; rows written before a failure
    are kept.

    Returns:
        The exit code from the plugin, and the number of rows written, by table.
    """
    recorders = {plugin.module.NAME: plugin for plugin in plugins.plugins(plugins.RECORDERS)}
    if name not in recorders:
        names = ", ".join(["cupti", *TOOLS, *sorted(recorders)])
        raise CurvescopeError(f"--with {name}: no recorder has this name; choose one of {names}.")
    plugin = recorders[name]
    meta = {"recorder": name, "argv": without_secrets(command), **describe_environment()}
    with RecordingWriter(path, {**meta, "recording_type": "profile", "protocol": None}) as writer:
        try:
            code = int(plugin.module.record(command, writer))
        except CurvescopeError:
            raise
        except Exception as error:  # third-party code may raise anything
            raise CurvescopeError(
                f"Recorder {name} of {plugin.package} failed ({type(error).__name__}: {error}). "
                "Report this to its authors; `--with cupti` records without it."
            ) from error
    recording = open_recording(path)
    return code, {table: recording.count_rows(table) for table in TABLES}
