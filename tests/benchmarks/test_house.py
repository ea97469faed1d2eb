"""The figures of the house, on texts by hand."""

from benchmarks.house import figures_of, is_participle, prose, prose_of

from ..tables import ask_each

CODE = '''"""One sentence; what is left."""


def judged(steps):
    found = [step for step in steps if step]
    return len(found)
'''


@ask_each(
    ("name", "is_one"),
    [("judged_steps", True), ("_found", True), ("seed_of", False), ("judge", False)],
)
def test_functions_named_by_a_participle_are_told_from_verbs(name, is_one):
    assert is_participle(name) == is_one


def test_a_file_is_counted_without_its_docstring_as_code(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(CODE)
    counts = figures_of(path)
    assert (counts["statements"], counts["functions"], counts["participles"]) == (2, 1, 1)
    # found, the list, step, steps, step, step; the call, len, found
    assert counts["nodes"] == 9
    assert (counts["words"], counts["sentences"], counts["semicolons"]) == (5, 1, 1)
    assert counts["pronouns"] == counts["names"] == 1


def test_code_of_a_page_is_no_prose():
    page = "Those of a page.\n\n```sh\na; b; c\n```\n\nOf T alone; more.\n"
    counts = prose_of(prose(page))
    assert (counts["pronouns"], counts["semicolons"]) == (2, 1)
