from curvescope.analysis.render.terminal import progress_bars


def test_bars_leave_no_line_where_standard_error_is_no_terminal(capsys):
    with progress_bars(10) as bars:
        bars.update(bars.add_task("reading"), completed=1, total=2)
    assert capsys.readouterr().err == ""


def test_bars_are_drawn_on_a_terminal(capsys, monkeypatch):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    with progress_bars(10, counted=True) as bars:
        bars.update(bars.add_task("compiling", total=2), completed=1)
    said = capsys.readouterr().err
    assert "compiling" in said
    assert "1/2" in said
