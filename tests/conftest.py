"""What several tests share: the registry, jobs and lanes made from overrides, and snapshots of global generators."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from filelock import FileLock
from torch import nn

from nnexp import DataSpec
from nnexp.base.signals import StopRequest
from nnexp.config.job import Job
from nnexp.data import rng_state, seeding
from nnexp.data.dataset_cache import DatasetCache
from nnexp.data.seeding import seeded_generator
from nnexp.execution.plan import plan_cohorts
from nnexp.execution.plan_runner import run_plan
from nnexp.probing.runner import ProbeLanes
from nnexp.probing.view import View
from nnexp.registry.discovery import Registry, plugin_folders
from nnexp.rundir.run import Run
from nnexp.training.lane import Lane

torch.set_num_threads(1)
pytest.register_assert_rewrite("contract.rows", "contract.splits", "contract.steps", "contract.trainers")


def pytest_configure() -> None:
    """Keep compiled modules apart from their sources where the environment says to write none beside them.

    Compiling torch and Lightning anew takes half of the time of each of the processes that tests start.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode, sys.pycache_prefix = False, str(Path(__file__).with_name("__pycache__"))
        os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


SLOW_OF_FOLDER = pytest.StashKey[dict[Path, list[bool]]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note of each folder which of its tests are slow, before any are left out; `test_rooms.py` looks at it."""
    noted = config.stash.setdefault(SLOW_OF_FOLDER, {})
    for item in items:
        noted.setdefault(item.path.parent, []).append(item.get_closest_marker("slow") is not None)


@pytest.fixture
def slow_of_folder(request: pytest.FixtureRequest) -> dict[Path, list[bool]]:
    """Of each folder that was collected, whether each of its tests is slow."""
    return request.config.stash[SLOW_OF_FOLDER]


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """A folder that the first worker to ask for it fills: `made_once("name", fill)` calls `fill(folder)`."""
    own = tmp_path_factory.getbasetemp()
    place = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def make(name: str, fill: Callable[[Path], object]) -> Path:
        folder, unfinished = place / name, place / f"{name}.unfinished"
        with FileLock(f"{folder}.lock"):
            if not folder.exists():
                shutil.rmtree(unfinished, ignore_errors=True)
                unfinished.mkdir()
                fill(unfinished)
                unfinished.rename(folder)
        return folder

    return make


@pytest.fixture(scope="session")
def registry() -> Registry:
    """The plugins that are there."""
    from contract.registry import REGISTRY  # once asserts in `contract` are rewritten

    return REGISTRY


@pytest.fixture(scope="session")
def registry_with() -> Callable[[Path], Registry]:
    """The same and those of one more folder."""
    return lambda folder: Registry([*plugin_folders(), folder])


@pytest.fixture(scope="session")
def registry_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Registry]:
    """The plugins that are there and more: `registry_of("own", model=source)`; the same one for the same sources."""

    @cache
    def make(name: str, **sources: str) -> Registry:
        folder = tmp_path_factory.mktemp("plugins")
        for kind, source in sources.items():
            (folder / kind).mkdir()
            (folder / kind / f"{name}.py").write_text(source, encoding="utf-8")
        return Registry([*plugin_folders(), folder])

    return make


@pytest.fixture(scope="session")
def make_job(registry: Registry) -> Callable[..., Job]:
    """One job from overrides; composed once for each set of them."""
    from contract.compose import jobs_of

    known: dict[tuple[Registry, tuple[str, ...]], Job] = {}

    def make(*overrides: str, plugins: Registry = registry) -> Job:
        key = (plugins, overrides)
        if key not in known:
            known[key] = jobs_of(overrides, plugins)[0]
        return known[key]

    return make


@pytest.fixture(scope="session")
def make_lane(registry: Registry, make_job: Callable[..., Job]) -> Callable[..., Lane]:
    """A lane on the CPU, at step 0, from overrides."""

    def make(
        *overrides: str,
        plugins: Registry = registry,
        should_stop: Callable[[], bool] = lambda: False,
        datasets: DatasetCache | None = None,
    ) -> Lane:
        return Lane(make_job(*overrides, plugins=plugins), plugins, torch.device("cpu"), should_stop, datasets)

    return make


@pytest.fixture
def view_of(make_lane: Callable[..., Lane], registry: Registry) -> Callable[..., View]:
    """What a probe is given of a job at a step: `view_of("dataset=moons", "model=mlp", step=20)`."""

    def look(*overrides: str, plugins: Registry = registry, step: int = 0) -> View:
        datasets = DatasetCache()
        lane = make_lane(*overrides, plugins=plugins, datasets=datasets)
        lane.advance(step)
        own = ProbeLanes(lambda job: Lane(job, plugins, torch.device("cpu"), lambda: False, datasets)).copy_from(lane)
        return View(own.fresh(), seeded_generator(0, "probe"), own.exact)

    return look


@pytest.fixture
def view_on(view_of: Callable[..., View], registry: Registry) -> Callable[..., View]:
    """A view of any module, or model by name, on random rows of any data, two of each class in turn:
    `view_on(6, spec, "vit", hidden_size=8)`.
    """
    view: Any = view_of("dataset=moons", "model=linear")

    def make(num_rows: int, data: DataSpec, module: nn.Module | str, *lengths: torch.Tensor, **values: Any) -> View:
        model = registry.get("model", module).load()(data, **values) if isinstance(module, str) else module
        shape = (num_rows, *data.shape)
        x = torch.randint(data.vocab, shape) if data.kind == "tokens" else torch.randn(shape)
        rows = (x, torch.arange(num_rows) // 2 % data.outputs, *lengths)
        view.data, view.module = data, model.eval()
        view.rows = lambda split, count: tuple(t[:count].clone() for t in rows)
        return view

    return make


def _numbers(state: rng_state.RngState) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in state.items()}


@pytest.fixture
def undrawn() -> Callable[..., Any]:
    """A context in which nothing may be drawn from, or change, the global generators."""

    @contextmanager
    def check() -> Iterator[None]:
        before = _numbers(rng_state.get_rng_state())
        yield
        assert _numbers(rng_state.get_rng_state()) == before

    return check


@pytest.fixture(autouse=True)
def _global_generators() -> Iterator[None]:
    """Each test starts from the same global generators, whatever ran before it."""
    with seeding.seeded(0):
        yield


@pytest.fixture
def write_plugin(tmp_path: Path) -> Callable[..., Path]:
    """Writes `<folder>/<kind>/<name>.py` in the test's own folder and gives its path."""

    def write(name: str, source: str | bytes, kind: str = "model", folder: str = "own") -> Path:
        path = tmp_path / folder / kind / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(source if isinstance(source, bytes) else source.encode())
        return path

    return write


@pytest.fixture
def change_file() -> Iterator[Callable[[Path, str], object]]:
    """Writes a text to a file that other tests use too; it has its old text again when the test ends."""
    before: dict[Path, str] = {}

    def change(path: Path, text: str) -> None:
        before.setdefault(path, path.read_text(encoding="utf-8"))
        path.write_text(text, encoding="utf-8")

    yield change
    for path, text in before.items():
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def write_config(tmp_path: Path) -> Callable[..., Path]:
    """Writes `<group>/<name>.yaml` in a folder of configs of the test's own and gives that folder."""

    def write(group: str, name: str, text: str, folder: str = "configs") -> Path:
        path = tmp_path / folder / group / f"{name}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return tmp_path / folder

    return write


@pytest.fixture
def train(tmp_path: Path, registry: Registry) -> Callable[..., Run]:
    """Trains one job to its end, as the command line does, into the test's own folder."""

    from contract.compose import jobs_of

    def run(*overrides: str, plugins: Registry = registry, runs: str = "runs", stop: StopRequest | None = None) -> Run:
        jobs = jobs_of([*overrides, f"runs='{tmp_path / runs}'"], plugins)
        return run_plan(
            plan_cohorts(jobs, plugins, retry_statuses=("failed",)), plugins, stop or StopRequest(), quiet=True
        )[0].run

    return run


FAULTY = '''"""Faults by a value. Our own."""
import os, signal, sys, threading, time
from typing import Annotated
import torch
from torch import nn
from nnexp import DataSpec, PerLane, model
from nnexp.data.views import as_vector


@model
class Faulty(nn.Module):
    """One layer, and a fault.

    Args:
        data: what the dataset says of its tensors.
        fault: which.
    """

    def __init__(self, data: DataSpec, *, fault: Annotated[float, PerLane] = 0.0):
        super().__init__()
        self.data, self.fault, self.head = data, fault, nn.Linear(data.features, data.outputs)
        if fault == 1:
            raise ValueError("a fault in the constructor")
        if fault == 6:
            os._exit(0)
        if fault == 8:
            threading.Thread(target=time.sleep, args=(1000,)).start()
        self.register_buffer("scale", torch.tensor(float("nan") if fault == 5 else 1.0))

    def forward(self, x, lengths=None):
        if self.fault == 2:
            raise RuntimeError("a fault in forward")
        if self.fault == 3:
            sys.exit(0)
        if self.fault == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        if self.fault == 7:
            print("it prints")
        if self.fault == 9:
            print(os.environ.get("CUDA_VISIBLE_DEVICES"))
        return self.head(as_vector(x, self.data)) * self.scale
'''


@pytest.fixture
def faulty(registry_of: Callable[..., Registry]) -> Registry:
    """The plugins that are there, and a model whose `fault` says how it fails."""
    return registry_of("faulty", model=FAULTY)
