"""The rooms of the code: imports go down the list of rooms in docs/draw_rooms.py, and the drawn
picture is today's.
"""

import graphlib

from .shared import load_script
from .tables import ask_each

rooms = load_script("docs/draw_rooms.py")
ROOT, MODULES = rooms.ROOT, list(rooms.modules())


def test_imports_go_down():
    order = list(rooms.ROOMS)
    upward = {
        (room, target)
        for room, targets in rooms.arrows().items()
        for target in targets
        if order.index(target) < order.index(room)
    }
    assert not upward


def module_of(name, modules):
    """The module of the package that a name lies in; None outside the package."""
    while name and name not in modules:
        name = name.rpartition(".")[0]
    return name or None


def test_no_file_imports_itself_through_others():
    """Also not where only types are imported: who reads one file need not have read the other."""
    files = {module.removesuffix(".__init__"): (path, module) for path, module in MODULES}
    imported = {
        file: {module_of(name, files) for name in rooms.imports(*found)} - {None, file}
        for file, found in files.items()
    }
    graphlib.TopologicalSorter(imported).prepare()  # raises CycleError, which names the files


# Beside their room's place in the list.
@ask_each(
    ("room", "other"),
    [
        ("analysis", "kernels"),  # analysis reads recordings; nothing of it measures
        ("profiling.measure", "profiling.readers"),
        ("profiling.workload", "profiling.readers"),
        ("analysis.causes", "analysis.cost_model"),
    ],
)
def test_rooms_that_know_nothing_of_each_other(room, other):
    importers = [name for name, targets in rooms.arrows().items() if other in targets]
    assert not [name for name in importers if name == room or name.startswith(room + ".")]


# Who changes the core need not read these: each is known to few, its doors.
DOORS = {
    "analysis.cost_model": ["analysis.diagnosis.explain", "analysis.side", "predicting"],
    "analysis.ranks": [
        "analysis.render.ranks",
        "analysis.render.show_scaling",
        "analysis.scaling",
        "commands.scale.read",
        "recording",
    ],
    "analysis.energy": ["analysis.render.energy", "analysis.render.report_data"],
    "analysis.memory": ["analysis.render.memory"],
    "analysis.scaling": ["analysis.render.scaling", "analysis.render.show_scaling"],
    "profiling.measure.scaling_run": ["commands.scale.measure", "scaling_rank"],
    "profiling.measure.dask_workers": ["commands.sweep"],
}


@ask_each("side", DOORS)
def test_a_side_room_has_few_doors(side):
    inside = f"curvescope.{side}"
    importers = {
        module.partition(".")[2]
        for path, module in MODULES
        if not module.startswith(inside)
        for name in rooms.imports(path, module)
        if name == inside or name.startswith(f"{inside}.")
    }
    assert sorted(importers) == DOORS[side]


@ask_each("heavy", ["torch", "cupy", "pycuda", "numba", "nvtx"])
def test_analysis_needs_no_framework(heavy):
    users = [
        module
        for path, module in MODULES
        if module.startswith("curvescope.analysis.")
        for name in rooms.imports(path, module)
        if name.split(".")[0] == heavy
    ]
    assert not users


def test_links_of_the_rooms_are_relative():
    for room in ("analysis", "experiments", "kernels", "profiling"):
        assert (ROOT / "curvescope" / room).readlink().as_posix() == f"../{room}"


def test_the_picture_is_drawn_from_the_imports():
    assert rooms.in_contributing() == rooms.CONTRIBUTING.read_text("utf-8"), "run `make rooms`"
    assert rooms.svg() == rooms.PICTURE.read_text("utf-8"), "run `make rooms`"
