"""A section of a page is replaced where it stands, and nothing else changes."""

from benchmarks.evidence import write_section

PAGE = "# A\n\ntext\n\n## B\n\nold\n\n## C\n\nkept\n"


def test_a_section_is_replaced_in_its_place_or_added_at_the_end(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(PAGE)
    write_section(page, "## B", "## B\n\nold\n")
    assert page.read_text() == PAGE
    write_section(page, "## B", "## B\n\nnew\n")
    assert page.read_text() == PAGE.replace("old", "new")
    write_section(page, "## D", "## D\n\nlast\n")
    assert page.read_text() == PAGE.replace("old", "new") + "\n## D\n\nlast\n"
