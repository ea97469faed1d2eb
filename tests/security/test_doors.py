"""What writes or deletes a file goes through `profiling/recording/inside.py`, which follows no link
in a recording, or is listed here with the reason why it needs not.
"""

import ast
import re
from functools import cache

from ..shared import ROOT

ROOMS = ("profiling", "analysis", "experiments", "kernels", "curvescope")
DOOR = "profiling/recording/inside.py"
# Methods and functions that write, delete or rename, by any object: `Path`, `os`, `shutil`, …
CHANGING = {
    *("unlink", "rmdir", "rmtree", "remove", "removedirs", "rename", "renames"),
    *("mkdir", "makedirs", "write_text", "write_bytes", "touch", "truncate", "ftruncate"),
    *("symlink_to", "hardlink_to", "symlink", "link", "chmod", "copy", "copy2"),
    *("copyfile", "copyfileobj", "copytree", "move"),
}
# Of these, calls of objects that are no files are left out by the names of their objects.
AMBIGUOUS = {"remove", "copy", "rename"}
FILES = {"os", "shutil"}
OTHERS = ("open", "replace", "OSFile")  # which change files by their arguments
# What the text of a file with such a call has; most have none, and need no parsing.
CALLED = re.compile(rf"\bopen\(|\.(?:{'|'.join([*CHANGING, *OTHERS])})\b")
OWN_FOLDER = "in a temporary folder that this process made"
OWN_CACHE = "a cache or register in the user's own folder, which no recording names"
IN_PROGRAM = (
    "runs in the recorded program, which has no module of ours, and writes where it is told"
)
NEW = "makes a new folder where the user said, and fails where something is"
TABLE = "a table in memory"
# By file and function.
ALLOWED = {
    "profiling/recording/atomic_files.py atomic_file": "an object of a store: no links",
    "profiling/recording/atomic_files.py claim": "the folder that the user named; what is in it "
    "goes through the door",
    "profiling/recording/remote_store.py RemotePath.write_bytes": "an object of a store: no links",
    "profiling/recording/store.py new_recording_path": NEW,
    "profiling/recording/store.py _remove_empty": "an empty folder that `new_recording_path` made",
    "profiling/recording/part_files.py remove_parts": "an object of a store: no links",
    "profiling/recording/export.py _make_folder": NEW,
    "profiling/recording/archive.py unpack_archive": NEW,
    "profiling/recording/named_code.py _make_key": "the key in the user's own folder",
    "profiling/recording/hidden_commands.py _keep": "a new file in the user's own folder",
    "curvescope/profile_files.py open_any": OWN_FOLDER,
    "profiling/readers/source.py Source.on_disk": OWN_FOLDER,
    "profiling/readers/nsight_reports.py convert_report": OWN_FOLDER,
    "profiling/readers/nsight_reports.py write_table": OWN_FOLDER,
    "profiling/collect/startup/": IN_PROGRAM,
    "profiling/collect/shared_memory.py": "the folder of chunk files that the running command made "
    "for the program that it runs: completing a recording calls none of these",
    "profiling/collect/trace_handler.py": NEW,
    "profiling/measure/counted_step.py": OWN_FOLDER,
    "profiling/measure/program_run.py _own_folder": NEW,
    "profiling/measure/program_run.py _open_log": "/dev/null",
    "profiling/measure/preloading.py": OWN_FOLDER,
    "profiling/hardware/register.py": OWN_CACHE,
    "profiling/hardware/ceilings.py": OWN_CACHE,
    "profiling/hardware/memory_usage.py": "/proc/self",
    "experiments/factors/processor.py": "/proc/self",
    "kernels/compile.py": OWN_CACHE,
    "analysis/compare.py _with_former_names": TABLE,
    "curvescope/cli.py _main": "/dev/null",
    "curvescope/commands/compare.py _write_for_ci": "the end of the file that the user named",
    "curvescope/pytest_plugin.py": "the file of accepted times that the user's tests name",
}


def changing_calls(path):
    """File, function and call of each call of a module that may write or delete."""
    text = path.read_text()
    left = [(ast.parse(text), ())] if CALLED.search(text) else []
    while left:
        node, inside = left.pop()
        if isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.AsyncFunctionDef)):
            inside = (*inside, node.name)
        if isinstance(node, ast.Call) and changes(node):
            yield ".".join(inside), ast.unparse(node)[:60]
        left += ((child, inside) for child in ast.iter_child_nodes(node))


def changes(call):
    if any(_is_of_files(argument) for argument in call.args):  # e.g. what runs at exit
        return True
    if isinstance(call.func, ast.Name):
        return call.func.id == "open" and _writes(call.args[1:], call.keywords)
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in (*CHANGING, *OTHERS):
        return False
    name, owner = call.func.attr, ast.unparse(call.func.value)
    if name == "open":
        if owner == "os":
            return any(flag in ast.unparse(call) for flag in ("O_WRONLY", "O_RDWR", "O_CREAT"))
        return _writes(call.args, call.keywords)
    if name == "replace":  # of a file: of a text it has two arguments, of a dataclass keywords
        return owner == "os" or (len(call.args) == 1 and not call.keywords)
    if name == "OSFile":
        return len(call.args) > 1
    if name in AMBIGUOUS:
        return owner in FILES or (name == "rename" and len(call.args) == 1 and not call.keywords)
    return name in CHANGING


def _is_of_files(node):
    return (
        isinstance(node, ast.Attribute)
        and node.attr in CHANGING
        and ast.unparse(node.value) in FILES
    )


def _writes(arguments, keywords):
    given = [*arguments, *(word.value for word in keywords if word.arg == "mode")]
    modes = [each.value for each in given if isinstance(each, ast.Constant)]
    return any(
        isinstance(mode, str) and set(mode) & set("wax+") and len(mode) < 4 for mode in modes
    )


@cache
def all_changing_calls():
    return list(_find_all())


def _find_all():
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            # The rooms are links in the package, too.
            if name != DOOR and not any(part.is_symlink() for part in path.parents):
                for function, call in changing_calls(path):
                    yield f"{name} {function}", call


def test_every_call_that_changes_files_is_in_the_door_or_has_a_reason():
    new = [
        f"{place}: {call}"
        for place, call in all_changing_calls()
        if not any(place.startswith(allowed) for allowed in ALLOWED)
    ]
    assert not new, "Use profiling.recording.inside, or add a reason to ALLOWED:\n" + "\n".join(new)


def test_no_reason_is_of_a_call_that_is_gone():
    places = [place for place, _ in all_changing_calls()]
    gone = [allowed for allowed in ALLOWED if not any(p.startswith(allowed) for p in places)]
    assert not gone


def test_the_search_sees_calls_of_each_kind(tmp_path):
    module = tmp_path / "module.py"
    module.write_text(
        "import os, shutil\n"
        "def f(p, q, text, mode):\n"
        "    p.unlink(); os.remove(p); shutil.rmtree(p); p.rename(q); p.replace(q)\n"
        "    os.replace(p, q)\n"
        "    open(p, 'w'); p.open('ab'); open(p, mode='x'); os.open(p, os.O_RDWR)\n"
        "    p.write_text(text); p.mkdir(); p.symlink_to(q)\n"
        "    atexit.register(shutil.rmtree, p)\n"
        "    text.replace('a', 'b'); open(p); p.open(); open(p, 'rb'); os.open(p, os.O_RDONLY)\n"
        "    [].remove(1); {}.copy()\n"
    )
    assert len(list(changing_calls(module))) == 14
