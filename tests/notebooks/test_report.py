"""`run_report` and its HTML: small notebooks written here, run for real, opened in Chromium with the network off."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import SimpleNamespace

import nbformat
import pytest
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

from blockserve.core import BlockServeError, ConfigError, UnknownNameError
from blockserve.report import ReportError, available, copy_notebooks, launch_lab, run_report, to_html
from browser import open_file

PARAMETERS = "n = 3  # bars\ncolor = 'teal'"

CHART = """
import plotly.graph_objects as go
go.Figure(go.Bar(x=list(range(n)), y=[1] * n, marker_color=color), layout={"title": "</script><b>bars</b>"})
"""

# A widget as the player is one: code in `_esm`, one Bytes trait, a small trait, a static fallback.
WIDGET = '''
import anywidget, traitlets

class Bars(anywidget.AnyWidget):
    _esm = """
    function render({ model, el }) {
      const bytes = model.get("data");
      const canvas = document.createElement("canvas");
      canvas.width = 30; canvas.height = 10;
      canvas.dataset.testid = "bars";
      canvas.dataset.length = bytes.byteLength;
      const draw = () => {
        const pen = canvas.getContext("2d");
        pen.fillStyle = `rgb(${bytes.getUint8(0)},${bytes.getUint8(1)},${bytes.getUint8(2)})`;
        pen.fillRect(0, 0, model.get("width"), 10);
        canvas.dataset.width = model.get("width");
      };
      model.on("change:width", draw);
      draw();
      el.append(canvas);
      const button = document.createElement("button");
      button.textContent = "wider";
      button.onclick = () => { model.set("width", model.get("width") + 5); model.save_changes(); };
      el.append(button);
    }
    export default { render };
    """
    data = traitlets.Bytes(b"").tag(sync=True)
    width = traitlets.Int(5).tag(sync=True)

Bars(data=bytes([200, 30, 40]) * n, width=10)
'''

RESULTS = 'import json, pathlib\npathlib.Path("results.json").write_text(json.dumps({"n": n, "color": color}))'


def write(path: Path, *sources: str, parameters: str = PARAMETERS) -> Path:
    cells = [
        new_markdown_cell("Some words.\n\n# The title & more"),
        new_code_cell(parameters, metadata={"tags": ["parameters"]}),
        *map(new_code_cell, sources),
    ]
    nbformat.write(new_notebook(cells=cells), path)
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """One report with a chart, two widgets, a progress bar and results; made once, looked at by several tests."""
    folder = tmp_path_factory.mktemp("report")
    bar = "from tqdm.notebook import tqdm\nfor _ in tqdm(range(3)): pass"
    path = write(folder / "small.ipynb", CHART, WIDGET, "Bars(data=b'\\x00\\x00\\xff', width=5)", bar, RESULTS)
    return run_report(str(path), folder / "out", {"n": "4"}, progress=False)


def test_a_run_leaves_the_page_the_notebook_and_its_results(report):
    assert report.name == "small" and report.html.name == "small.html"
    assert report.results == {"n": 4, "color": "teal"}
    assert json.loads((report.folder / "results.json").read_text()) == report.results
    executed = nbformat.read(report.notebook, as_version=4)
    assert any("injected-parameters" in cell.metadata.get("tags", ()) for cell in executed.cells)
    assert report.seconds > 0


def test_the_page_has_its_title_and_each_script_once(report):
    page = report.html.read_text()
    assert "<title>The title &amp; more</title>" in page
    assert len(re.findall(r"\* plotly\.js v", page)) == 1
    assert page.count("Plotly.newPlot(") >= 1


def test_the_page_loads_nothing_and_shows_no_stale_progress_bar(report):
    page = report.html.read_text()
    assert not re.findall(r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=\"?(?:https?:)?//[^>]*>", page)
    assert "mathjax/2.7" not in page and "unpkg.com/@jupyter-widgets" not in page
    assert "0/3" not in page


def test_a_page_without_charts_and_widgets_carries_neither_script(tmp_path):
    path = write(tmp_path / "plain.ipynb", "print('only text', n)")
    page = run_report(str(path), tmp_path / "out", progress=False).html.read_text()
    assert "only text 3" in page and "Plotly" not in page
    assert len(page) < 500_000


@pytest.mark.browser
def test_the_page_draws_chart_and_widgets_from_disk_without_a_network(report, browser):
    with open_file(browser, report.html) as page:
        page.wait_for_selector(".plotly-graph-div .bars .point")
        assert page.locator(".plotly-graph-div .bars .point").count() == 4
        assert "bars" in page.locator(".gtitle").text_content()
        canvases = page.locator("canvas[data-testid=bars]")
        canvases.nth(1).wait_for()
        assert canvases.count() == 2
        assert canvases.first.get_attribute("data-length") == "12"
        assert pixel(canvases.first, 2, 2) == [200, 30, 40]
        assert pixel(canvases.nth(1), 2, 2) == [0, 0, 255]
        assert pixel(canvases.nth(1), 7, 2) == [0, 0, 0]


@pytest.mark.browser
def test_a_widget_of_the_page_still_answers(report, browser):
    with open_file(browser, report.html) as page:
        page.get_by_role("button", name="wider").first.click()
        page.wait_for_selector("canvas[data-testid=bars][data-width='15']")
        assert pixel(page.locator("canvas[data-testid=bars]").first, 13, 2) == [200, 30, 40]


def pixel(canvas, x: int, y: int) -> list[int]:
    script = "(c, [x, y]) => Array.from(c.getContext('2d').getImageData(x, y, 1, 1).data).slice(0, 3)"
    return canvas.evaluate(script, [x, y])


def test_a_failing_cell_is_named_and_the_output_kept(tmp_path):
    path = write(tmp_path / "broken.ipynb", "print('so far')", "1 / 0", "print('never')")
    with pytest.raises(ReportError) as caught:
        run_report(str(path), tmp_path / "out", {"n": 1}, progress=False)
    message = str(caught.value)
    assert "cell 4 (In [4]): ZeroDivisionError: division by zero" in message
    assert str(caught.value.notebook) in message and "\n" not in message
    kept = caught.value.notebook.read_text()
    assert "so far" in kept and "ZeroDivisionError" in kept
    assert not (tmp_path / "out" / "broken.html").exists()


def test_a_kernel_that_dies_is_reported_in_one_line(tmp_path):
    path = write(tmp_path / "dead.ipynb", "import os; os._exit(1)")
    with pytest.raises(ReportError, match="kernel died"):
        run_report(str(path), tmp_path / "out", progress=False)


def test_an_earlier_runs_page_and_results_do_not_outlive_a_failure(tmp_path):
    good = write(tmp_path / "nb.ipynb", RESULTS)
    run_report(str(good), tmp_path / "out", progress=False)
    write(tmp_path / "nb.ipynb", "raise ValueError('first line\\nsecond line')", RESULTS)
    with pytest.raises(ReportError, match="ValueError: first line") as caught:
        run_report(str(good), tmp_path / "out", progress=False)
    assert "second line" not in str(caught.value)
    assert not (tmp_path / "out" / "nb" / "results.json").exists()
    assert not (tmp_path / "out" / "nb.html").exists()


@pytest.mark.parametrize(
    ("given", "error", "text"),
    [({"colour": "red"}, UnknownNameError, "Did you mean 'color'"), ({"n": "abc"}, ConfigError, "'n' must be int")],
)
def test_wrong_parameters_are_refused_before_anything_runs(tmp_path, given, error, text):
    path = write(tmp_path / "nb.ipynb", RESULTS)
    with pytest.raises(error, match=text):
        run_report(str(path), tmp_path / "out", given, progress=False)
    assert not (tmp_path / "out").exists()


def test_an_unknown_notebook_lists_the_known_ones(tmp_path, monkeypatch):
    folder(tmp_path, monkeypatch)
    with pytest.raises(UnknownNameError, match="Did you mean '00_tour'"):
        run_report("0_tour", tmp_path / "out")
    with pytest.raises(BlockServeError, match="no notebook at"):
        run_report("missing.ipynb", tmp_path / "out")


def test_a_report_does_not_overwrite_its_own_notebook(tmp_path):
    path = write(tmp_path / "nb.ipynb", "1")
    before = path.read_bytes()
    with pytest.raises(BlockServeError, match="overwrite its own notebook"):
        run_report(str(path), tmp_path)
    assert path.read_bytes() == before


def test_a_saved_widget_without_its_state_leaves_a_note_or_its_fallback(tmp_path):
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "gone"}, "text/plain": "Player()"}
    cells = [SimpleNamespace(data=view), SimpleNamespace(data={**view, "text/html": "<svg id='fallback'></svg>"})]
    outputs = [nbformat.v4.new_output("display_data", cell.data) for cell in cells]
    notebook = new_notebook(cells=[new_code_cell("x", outputs=[output]) for output in outputs])
    nbformat.write(notebook, tmp_path / "nb.ipynb")
    page = to_html(tmp_path / "nb.ipynb")
    assert "run the notebook to use it" in page and "fallback" in page and "Player()" not in page


def folder(tmp_path: Path, monkeypatch) -> Path:
    """A notebook folder of our own in place of the shipped one."""
    shipped = tmp_path / "shipped"
    shipped.mkdir()
    write(shipped / "00_tour.ipynb", "1")
    write(shipped / "01_more.ipynb", "2")
    monkeypatch.setattr("blockserve.report.library.notebook_folder", lambda: shipped)
    return shipped


def test_copying_notebooks_keeps_work_that_differs(tmp_path, monkeypatch):
    folder(tmp_path, monkeypatch)
    assert list(available()) == ["00_tour", "01_more"]
    target = tmp_path / "mine"
    assert [p.name for p in copy_notebooks(target).copied] == ["00_tour.ipynb", "01_more.ipynb"]
    (target / "00_tour.ipynb").write_text("my work")
    (target / "01_more.ipynb").unlink()
    second = copy_notebooks(target)
    assert second.copied == (target / "01_more.ipynb",) and second.kept == (target / "00_tour.ipynb",)
    assert (target / "00_tour.ipynb").read_text() == "my work"
    with pytest.raises(BlockServeError, match="is a file"):
        copy_notebooks(target / "00_tour.ipynb")


def test_jupyterlab_starts_in_this_environment_and_its_exit_code_comes_back(tmp_path, capfd):
    assert launch_lab(tmp_path, ["--version"]) == 0
    assert re.match(r"4\.", capfd.readouterr().out)


def test_lab_hands_its_options_to_jupyterlab(tmp_path, monkeypatch, command):
    started = []
    monkeypatch.setattr("blockserve.report.launch_lab", lambda *given: started.append(given) or 3)
    code, out, _ = command("lab", tmp_path / "mine", "--port", 9000, "--no-browser", "--allow-root")
    assert started == [(tmp_path / "mine", ["--port=9000", "--no-browser", "--allow-root"])]
    assert code == 3 and '"copied"' in out
