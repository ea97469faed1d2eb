"""The planted errors fit the code they are planted in, and each is judged by what the tests say."""

from pathlib import Path

import pytest

from benchmarks import mutants

from ..tables import ask_each

CHECKOUT = Path(__file__).parents[2]


@ask_each(("path", "least"), [(mutants.LIST, 56), (mutants.VIRTUAL_LIST, 12)])
def test_every_old_text_is_found_once_and_every_mutant_compiles(path, least):
    listed = mutants.read_list(path)
    assert [mutant.number for mutant in listed] == list(range(1, len(listed) + 1))
    assert len(listed) >= least
    for mutant in listed:
        changed = mutant.apply((CHECKOUT / mutant.file).read_text())
        compile(changed, mutant.file, "exec")
        assert mutant.tests
        assert all((CHECKOUT / test).exists() for test in mutant.tests), mutant.number


def test_a_text_that_is_gone_is_an_error_that_names_the_file():
    gone = mutants.Mutant(7, "", "room/module.py", "a = 1", "a = 2", ())
    with pytest.raises(ValueError, match=r"mutant 7: room/module.py has the old text 0 times"):
        gone.apply("a = 3")
    with pytest.raises(ValueError, match=r"2 times"):
        gone.apply("a = 1\na = 1")


@pytest.mark.parametrize(
    ("exit_codes", "code", "last"),
    [
        ([0, 1, 1], 0, "2 of 2 caught"),
        ([0, 1, 0], 1, "survived: 2"),
        ([1], 2, "nothing can be said."),
        ([0, 4, 1], 2, "could not be run with: 1"),
    ],
)
def test_a_mutant_is_caught_where_its_tests_fail(tmp_path, capsys, exit_codes, code, last):
    (tmp_path / "m.py").write_text("value = 1\n")
    listed = [
        mutants.Mutant(number, "", "m.py", "value = 1", "value = 2", ("t",)) for number in (1, 2)
    ]
    codes, seen = iter(exit_codes), []

    def run(folder, tests):
        seen.append((folder / "m.py").read_text())
        return next(codes)

    assert mutants.plant(listed, tmp_path, run) == code
    assert capsys.readouterr().out.strip().endswith(last)
    assert seen == ["value = 1\n", *["value = 2\n"] * (len(exit_codes) - 1)]
    assert (tmp_path / "m.py").read_text() == "value = 1\n"


def test_a_copy_has_the_files_and_links_of_the_checkout(tmp_path):
    mutants.copy_checkout(tmp_path)
    assert (tmp_path / "curvescope" / "analysis").is_symlink()
    assert (tmp_path / "curvescope" / "analysis" / "compare.py").read_text() == (
        CHECKOUT / "analysis" / "compare.py"
    ).read_text()
    assert (tmp_path / "benchmarks" / "mutants.toml").exists()
    assert not (tmp_path / ".git").exists()
    assert list((tmp_path / "profiling").glob("*.so"))
