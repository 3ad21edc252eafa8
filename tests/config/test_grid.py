"""More than a grid: values moved together, points left out, repeats, and keys that only some plugins have."""

from __future__ import annotations

import re

import pytest
from contract.compose import sweep_of

from nnexp.base.errors import ConfigError
from nnexp.config.sweep import Sweep

SIZES = "model.hidden_size=8,16,32"
RATES = "trainer.lr=0.1,0.2,0.3"


@pytest.fixture
def sweep(registry):
    def composed(*overrides: str, **more) -> Sweep:
        result = sweep_of(list(overrides), registry, multirun=True, **more)
        result.check()
        return result

    return composed


def texts(composed: Sweep) -> list[str]:
    return [" ".join(job.overrides) for job in composed.jobs]


def test_keys_that_move_together_take_their_values_one_by_one(sweep) -> None:
    jobs = texts(sweep(SIZES, RATES, "seed=0,1", "sweep.zip=[model.hidden_size,trainer.lr]"))
    assert jobs[:3] == [
        "model.hidden_size=8 trainer.lr=0.1 seed=0",
        "model.hidden_size=8 trainer.lr=0.1 seed=1",
        "model.hidden_size=16 trainer.lr=0.2 seed=0",
    ]
    assert len(jobs) == 6


def test_several_groups_of_keys_move_together_choices_among_them(sweep) -> None:
    groups = "sweep.zip=[[model,seed],[trainer.lr,trainer.max_steps]]"
    jobs = texts(sweep("model=lstm,mlp", RATES, "seed=5,6", "trainer.max_steps=1,2,3", groups))
    assert len(jobs) == 6
    assert jobs[0] == "model=lstm seed=5 trainer.lr=0.1 trainer.max_steps=1"
    assert jobs[-1] == "model=mlp seed=6 trainer.lr=0.3 trainer.max_steps=3"


def test_points_with_all_of_some_overrides_are_left_out(sweep) -> None:
    out = ["sweep.exclude=['model.hidden_size=8,16 trainer.lr=0.1', 'trainer.lr=choice(0.2,0.3) model.hidden_size=32']"]
    assert texts(sweep(SIZES, RATES, *out)) == [
        "model.hidden_size=8 trainer.lr=0.2",
        "model.hidden_size=8 trainer.lr=0.3",
        "model.hidden_size=16 trainer.lr=0.2",
        "model.hidden_size=16 trainer.lr=0.3",
        "model.hidden_size=32 trainer.lr=0.1",
    ]
    assert len(texts(sweep("model=lstm,mlp", "seed=range(4)", "sweep.exclude='model=glob(m*) seed=range(3)'"))) == 5


def test_what_leaves_out_nothing_is_told(sweep) -> None:
    composed = sweep(SIZES, "sweep.exclude='model.hidden_size=7'")
    assert len(composed.jobs) == 3
    assert composed.notes == ["sweep.exclude=model.hidden_size=7: excludes no point."]


@pytest.mark.parametrize("key", ["sweep.repeats=2", "sweep.zip=[seed,model]", "sweep.exclude='seed=0'"])
def test_one_job_has_no_points(registry, key: str) -> None:
    with pytest.raises(ConfigError, match=f"{key.partition('=')[0]} is a sweep key: add -m."):
        sweep_of(["model=mlp", "seed=0", key], registry)


def test_an_experiment_that_is_a_sweep_is_one_job_without_multirun(registry, write_config) -> None:
    text = "# @package _global_\nsweep: {zip: [seed, trainer.lr], repeats: 1}\n"
    text += "hydra: {sweeper: {params: {seed: '1,2', trainer.lr: '0.1,0.2'}}}\n"
    composed = sweep_of(["experiment=own"], registry, searchpath=(str(write_config("experiment", "own", text)),))
    assert len(composed.jobs) == 1
    assert "-m trains all" in composed.notes[0]


def test_several_experiments_bring_their_own_sweeps(sweep) -> None:
    composed = sweep("experiment=hello,nonlinearity", "trainer.max_steps=3")
    assert [job.experiment for job in composed.jobs] == ["hello"] + ["nonlinearity"] * 10
    assert len({(job.experiment, job.label) for job in composed.jobs}) == 11


def test_repeats_are_seeds_counted_from_the_one_that_is_given(sweep) -> None:
    assert texts(sweep("model=lstm,mlp", "sweep.repeats=2")) == [
        f"model={model} seed={seed}" for model in ("lstm", "mlp") for seed in (0, 1)
    ]
    assert texts(sweep("seed=7", "sweep.repeats=3")) == ["seed=7", "seed=8", "seed=9"]


def test_a_file_may_say_all_this(sweep, write_config) -> None:
    text = "# @package _global_\nsweep: {zip: [seed, trainer.lr], exclude: seed=2, skip_invalid: true}\n"
    text += "hydra: {sweeper: {params: {seed: '1,2,3', trainer.lr: '0.1,0.2,0'}}}\n"
    folder = str(write_config("experiment", "own", text))
    composed = sweep("experiment=own", searchpath=(folder,))
    assert [job.options.seed for job in composed.jobs] == [1]
    assert [point for point, _ in composed.invalid] == ["seed=3 trainer.lr=0"]
    assert len(sweep("experiment=own", "sweep.exclude=null", searchpath=(folder,)).jobs) == 2


@pytest.mark.parametrize(
    ("overrides", "reason"),
    [
        (["sweep.zip=[model.hidden_size,trainer.lr]"], "model.hidden_size has 3, trainer.lr has 2"),
        (["sweep.zip=[model.hidden_size,seed]"], "sweep.zip: seed is not given"),
        (["sweep.zip=[model.hidden_sice,trainer.lr]"], "Did you mean 'model.hidden_size'"),
        (["sweep.zip=[trainer.lr,trainer.lr]"], "trainer.lr is listed twice"),
        (["sweep.zip=[trainer.lr,[model.hidden_size]]"], "a list of keys, or a list of such lists"),
        (["sweep.zip=3"], "sweep.zip: expected a list of"),
        (["sweep.exclude='seed=3'"], "seed is not given. .*Only keys that have values"),
        (["sweep.exclude='trainer.lr=0.1,0.2'"], "sweep.exclude excludes every point"),
        (["sweep.exclude=trainer.lr"], "not a key with a value"),
        (["""sweep.exclude="'a\""""], "No closing quotation"),
        (["seed=1,2", "sweep.repeats=2"], "seed has several values already"),
        (["seed=x", "sweep.repeats=2"], "not an integer to count from"),
        (["sweep.repeats=0"], "sweep.repeats: expected int >= 1 and <= 100000, got 0"),
        (["sweep.workers=1,2"], "sweep.workers applies to the whole sweep"),
        (["sweep.wokers=2"], "Did you mean 'sweep.workers'"),
        (["skip_invalid=true"], "Did you mean 'sweep.skip_invalid'"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(sweep, overrides: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        sweep(SIZES, "trainer.lr=0.1,0.2", *overrides)
    assert "\n" not in str(caught.value)


def test_a_key_that_only_some_plugins_have_is_swept_for_these(sweep) -> None:
    composed = sweep("model=rnn,lstm", "model.forget_bias=0,3", "seed=0,1")
    assert texts(composed)[:2] == ["model=rnn seed=0", "model=rnn seed=1"]
    assert len(composed.jobs) == 6
    assert composed.notes == ["model=rnn has no model.forget_bias: 4 points are 2 jobs"]
    assert sweep("model=rnn,lstm", "model.forget_bias=3").notes == [
        "model=rnn has no model.forget_bias: the value is not used"
    ]
    with pytest.raises(ConfigError, match="has no key 'forget_bias'"):
        sweep("model=rnn,gru", "model.forget_bias=0,3")


def test_invalid_points_are_named_together_and_can_be_left_out(sweep) -> None:
    with pytest.raises(ConfigError) as caught:
        sweep("model.hidden_size=8,0", "trainer.lr=0.1,-1")
    named = [line.partition(": ")[0] for line in str(caught.value).splitlines()]
    wrong = [
        "model.hidden_size=8 trainer.lr=-1",
        "model.hidden_size=0 trainer.lr=0.1",
        "model.hidden_size=0 trainer.lr=-1",
    ]
    assert named[:3] == wrong
    composed = sweep("model.hidden_size=8,0", "trainer.lr=0.1,-1", "sweep.skip_invalid=true")
    assert texts(composed) == ["model.hidden_size=8 trainer.lr=0.1"]
    assert [point for point, _ in composed.invalid] == wrong
    with pytest.raises(ConfigError, match=re.escape("trainer.lr: expected float > 0, got -1.")):
        sweep("trainer.lr=-1", "seed=0,1", "sweep.skip_invalid=true")
