"""TensorBoard in a real browser: what a user finds in its pages after a small sweep, a divergence and a Ctrl-C."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract.compose import jobs_of
from contract.stopping import StopAfter
from PIL import Image, ImageColor

from nnexp.base.signals import StopRequest
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.registry.discovery import Registry
from nnexp.rundir.run import Run
from nnexp.tensorboard.protos import CHARTS

CHROMIUM = shutil.which("chromium")
IS_CI = os.environ.get("CI") == "true"  # there, a browser that is missing is a failure
SECONDS = 20
MOONS = ("dataset=moons", "trainer.max_steps=40", "trainer.eval_every=10", "probe=[gradient_norm]")

try:
    from playwright.sync_api import Locator, Page, sync_playwright
except ImportError:
    if IS_CI:
        raise
    pytest.skip("needs playwright: pip install playwright", allow_module_level=True)
if CHROMIUM is None and not IS_CI:
    pytest.skip("needs chromium: apt-get install chromium", allow_module_level=True)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("browser")


@pytest.fixture(scope="module")
def runs(folder: Path, registry: Registry) -> dict[str, Run]:
    """One run of each model and value of a sweep, one that diverges, and one that is interrupted, by what they are."""

    def train(*overrides: str, stop: StopRequest | None = None) -> list[Run]:
        root = f"runs='{folder / 'runs'}'"
        jobs = jobs_of([*MOONS, *overrides, root], registry, multirun=True)
        return [
            item.run for item in run_plan(plan_cohorts(jobs, registry), registry, stop or StopRequest(), quiet=True)
        ]

    with pytest.warns(UserWarning, match="model=mlp has no model.forget_bias"):
        mlp, lstm_0, lstm_3 = train("model=mlp,lstm", "model.forget_bias=0,3")
    (diverged,) = train("model=mlp", "model.activation=relu", "trainer.lr=1e38")
    (interrupted,) = train("model=mlp", "model.activation=sigmoid", stop=StopAfter(30))
    found = {"mlp": mlp, "lstm 0": lstm_0, "lstm 3": lstm_3, "diverged": diverged, "interrupted": interrupted}
    statuses = [run.status for run in found.values()]
    assert statuses == ["finished", "finished", "finished", "diverged", "interrupted"]
    assert interrupted.read()["steps"] > 10
    return found


@pytest.fixture(scope="module")
def names(runs: dict[str, Run]) -> dict[str, str]:
    """The runs as TensorBoard calls them, by what they are."""
    return {what: f"default/{run.path.name}" for what, run in runs.items()}


@pytest.fixture(scope="module")
def address(folder: Path, names: dict[str, str]) -> Iterator[str]:
    """Of a TensorBoard that has read all runs to their ends: to the texts that say how they ended."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    program = Path(sysconfig.get_path("scripts")) / "tensorboard"
    command = [sys.executable, str(program), "--logdir", "runs", "--port", str(port), "--load_fast", "false"]
    process = subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        url = f"http://127.0.0.1:{port}/"
        until(lambda: set(names.values()) <= {run for run, tags in texts(url).items() if "status" in tags}, 60)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def page(address: str) -> Iterator[Page]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM or "chromium", args=["--no-sandbox"], timeout=60_000
        )
        try:
            page = browser.new_page(viewport={"width": 1600, "height": 1200})
            page.set_default_timeout(1000 * SECONDS)
            page.goto(address)
            yield page
        finally:
            browser.close()


def texts(url: str) -> dict[str, list[str]]:
    """The tags of texts that TensorBoard has read, by run; nothing until it answers."""
    try:
        with urllib.request.urlopen(f"{url}data/plugin/text/tags", timeout=5) as answer:
            return json.load(answer)
    except OSError:
        return {}


def until(is_so: Callable[[], Any], seconds: float = SECONDS) -> None:
    """Wait until something is so, which then passes, or fail as it fails at the end."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.1)


def open_tab(page: Page, name: str) -> None:
    page.get_by_role("tab", name=re.compile(f"^{name}$", re.IGNORECASE)).click()


def pixels(shown: Locator) -> np.ndarray:
    """(H, W, 3): what is seen."""
    return np.asarray(Image.open(io.BytesIO(shown.screenshot())).convert("RGB")).astype(int)


def colours_in(shown: Locator, colours: dict[str, str]) -> set[str]:
    """The names of the colours, as CSS writes them, that some pixels have."""
    seen = pixels(shown)
    near = {name: np.abs(seen - ImageColor.getrgb(colour)).max(-1) < 24 for name, colour in colours.items()}
    return {name for name, is_near in near.items() if is_near.sum() >= 4}


def test_the_curves_of_all_runs_are_drawn_on_one_chart(page: Page, names: dict[str, str]) -> None:
    open_tab(page, "Time Series")
    rows = page.locator("runs-data-table tb-data-table-content-row")
    rows.first.wait_for()
    colours = {}
    for row in rows.all():
        swatch = row.locator("button.run-color-swatch")
        colours[row.inner_text().strip()] = swatch.evaluate("button => getComputedStyle(button).backgroundColor")
    assert set(colours) == set(names.values())
    assert len(set(colours.values())) == len(colours)
    page.get_by_label("Ignore outliers in chart scaling").uncheck()
    page.locator("metrics-tag-filter input").fill("^(train|val)/loss$")
    page.keyboard.press("Escape")  # closes the suggestions, which hide charts
    for tag in ("train/loss", "val/loss"):
        chart = page.locator("metrics-filtered-view scalar-card", has_text=tag).locator("line-chart .series-view")
        until(lambda chart=chart: colours_in(chart, colours) == set(names.values()))  # type: ignore[misc]


def test_custom_scalars_compare_all_runs(page: Page, names: dict[str, str]) -> None:
    open_tab(page, "Custom Scalars")
    dashboard = page.locator("tf-custom-scalar-dashboard")
    boxes = dashboard.locator("tf-runs-selector paper-checkbox")
    boxes.first.wait_for()
    style = "box => [box.id.replace('checkbox-', ''), box.style.getPropertyValue('--paper-checkbox-checked-color')]"
    colours = dict(box.evaluate(style) for box in boxes.all())
    assert set(colours) == set(names.values())
    charts = dashboard.locator("tf-custom-scalar-multi-line-chart-card")
    titles = dashboard.locator("tf-card-heading .heading-label")
    until(lambda: titles.all_inner_texts() == [*CHARTS])
    matches = charts.locator(".matches-text")
    expected = [3 * 3 + 2 * 2, 3 * 2 + 2, 5, 5, 5 * 2]  # the test set is for those that finish; two layers each
    until(lambda: matches.all_inner_texts() == [f"Matches ({number})" for number in expected])
    seen = charts.first.locator("vz-line-chart2")
    until(lambda: colours_in(seen, colours) == set(names.values()))


TABLE = """grid => [...grid.shadowRoot.querySelectorAll("thead tr, tbody tr")].filter(row => !row.hidden).map(row =>
    [...row.children].filter(cell => !cell.hidden).map(cell =>
        cell.querySelector("slot").assignedElements().map(content => content.innerText.trim()).join("")))"""


def table(page: Page) -> dict[str, dict[str, str]]:
    """The HParams table as it is seen: by run, then by the header of the column."""
    header, *rows = [row for row in page.locator("tf-hparams-table-view vaadin-grid").evaluate(TABLE) if any(row)]
    cells = [dict(zip(header, row, strict=False)) for row in rows]
    return {row["Trial ID"]: row for row in cells if row.get("Trial ID")}


def test_hparams_has_a_row_for_each_run_with_its_values_and_final_metrics(
    page: Page, runs: dict[str, Run], names: dict[str, str]
) -> None:
    open_tab(page, "HParams")
    until(lambda: set(table(page)) == set(names.values()))
    rows = {what: table(page)[name] for what, name in names.items()}
    assert [rows[what]["model"] for what in names] == ["mlp", "lstm", "lstm", "mlp", "mlp"]
    assert [rows[what]["model.forget_bias"] for what in names] == ["", "0.0000", "3.0000", "", ""]
    assert [rows[what]["model.activation"] for what in names] == ["tanh", "", "", "relu", "sigmoid"]
    assert [float(rows[what]["trainer.lr"]) for what in names] == [0.01, 0.01, 0.01, 1e38, 0.01]
    shown = [name for name in rows["mlp"] if name.startswith("Final/")]
    assert {"Final/test/accuracy", "Final/test/loss", "Final/train/loss"} <= set(shown)
    for what, run in runs.items():
        final = run.read().get("metrics", {})
        assert bool(final) == (run.status == "finished")
        for name in shown:
            expected = final.get(name.removeprefix("Final/"), float("nan"))
            assert float(rows[what][name] or "nan") == pytest.approx(expected, rel=1e-3, nan_ok=True)


def test_hparams_knows_a_success_from_a_failure(page: Page, names: dict[str, str]) -> None:
    open_tab(page, "HParams")
    boxes = page.locator("tf-hparams-query-pane paper-checkbox")
    failures = {names["diverged"], names["interrupted"]}
    until(lambda: set(table(page)) == set(names.values()))
    boxes.filter(has_text="Success").click()
    until(lambda: set(table(page)) == failures)
    boxes.filter(has_text="Success").click()
    boxes.filter(has_text="Failure").click()
    until(lambda: set(table(page)) == set(names.values()) - failures)
    boxes.filter(has_text="Failure").click()


def test_pictures_are_not_blank(page: Page, names: dict[str, str]) -> None:
    open_tab(page, "Images")
    loaders = page.locator("tf-image-loader")
    until(lambda: loaders.count() == len(names))
    for name in names.values():
        picture = loaders.filter(has_text=name).locator("img")
        until(lambda picture=picture: pixels(picture).std() > 10)  # type: ignore[misc]


def test_texts_say_how_each_run_ended(page: Page, names: dict[str, str]) -> None:
    open_tab(page, "Text")
    loaders = page.locator("tf-text-loader")
    until(lambda: loaders.count() == len(names))
    for what, name in names.items():
        text = loaders.filter(has_text=name)
        word = what if what in ("diverged", "interrupted") else "finished"
        text.locator("strong", has_text=word).wait_for()
    loaders.filter(has_text=names["diverged"]).get_by_text("the loss is not finite").wait_for()
