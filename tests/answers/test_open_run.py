"""A run opened again."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import nnexp
from nnexp.base.errors import NnexpError, RecordError
from nnexp.data.metrics import evaluate

SHORT = ("dataset=moons", "model=mlp", "trainer.max_steps=50")


def test_a_loaded_model_on_its_loaded_data_gives_the_runs_own_metrics(train) -> None:
    run = train("dataset.pattern=[1,1]", "model.hidden_size=5", "trainer.max_steps=50")
    loaded = nnexp.load(run.path)
    for split in ("train", "val", "test"):
        for name, value in evaluate(loaded.model, getattr(loaded, split), loaded.data).items():
            assert value == run.read()["metrics"][f"{split}/{name}"]
    assert loaded.job.model.values["hidden_size"] == 5
    assert not loaded.model.training


def test_other_code_than_the_run_was_trained_with_is_warned_of(train) -> None:
    run = train(*SHORT)
    run.write(fingerprint="ab" * 32)
    with pytest.warns(UserWarning, match="have changed"):
        nnexp.load(run.path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [executed]",
        "model: {name: mlp, _target_: os.mkdir}",
        "model: {name: ../../evil}",
        "[]",
        "{",
        "runs: 3",
    ],
)
def test_a_hostile_or_broken_config_executes_nothing(train, text: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = train(*SHORT)
    (run.path / "config.yaml").write_text(text)
    with pytest.raises(NnexpError):
        nnexp.load(run.path)
    assert not Path("executed").exists()


def test_a_run_without_weights_is_refused_by_name(train) -> None:
    run = train(*SHORT)
    (run.path / "model.pt").unlink()
    with pytest.raises(RecordError, match=r"has no model\.pt: it is 'finished' at step 50"):
        nnexp.load(run.path)


@pytest.mark.slow
def test_the_door_imports_no_torch_until_it_must() -> None:
    code = "import sys, nnexp; print('torch' in sys.modules); nnexp.load; print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["False", "True"]


def test_the_door_lists_every_name_that_it_hands_on() -> None:
    stub = Path(nnexp.__file__).with_suffix(".pyi").read_text()
    names = re.findall(r" as (\w+)$", stub, re.MULTILINE)
    assert {"load", "plugin", "model", "Observation"} <= set(names)
    assert {*names, "__version__"} <= set(dir(nnexp))
    assert all(getattr(nnexp, name) is not None for name in dir(nnexp))


def test_the_door_has_no_other_name() -> None:
    with pytest.raises(AttributeError, match="No nnexp attribute lode"):
        nnexp.lode  # type: ignore[attr-defined]  # noqa: B018  # the access is the test


def test_weights_that_no_longer_fit_are_one_line(train) -> None:
    run = train(*SHORT)
    path = run.path / "config.yaml"
    path.write_text(path.read_text().replace("hidden_size: 16", "hidden_size: 17"))
    with pytest.warns(UserWarning, match="have changed"), pytest.raises(RecordError, match="does not fit") as caught:
        nnexp.load(run.path)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize("content", [b"\xff\xfe", b"a: ["])
def test_a_config_that_is_no_text_is_one_line(train, content: bytes) -> None:
    run = train(*SHORT)
    (run.path / "config.yaml").write_bytes(content)
    with pytest.raises(RecordError, match=r"config\.yaml cannot be read") as caught:
        nnexp.load(run.path)
    assert len(str(caught.value).splitlines()) == 1
