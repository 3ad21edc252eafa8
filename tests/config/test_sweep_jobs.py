"""Overrides -> jobs: sweeps and their order, experiments, presets, labels, and how often Hydra composes."""

import re
from dataclasses import replace

import pytest
from contract.compose import jobs_of

from nnexp.base.errors import ConfigError
from nnexp.config import hydra_compose as composer
from nnexp.config.sweep_jobs import compose_jobs

pytestmark = pytest.mark.slow


@pytest.fixture
def sweep(registry):
    """The jobs of a multirun."""

    def jobs(*overrides, **more):
        return jobs_of(list(overrides), registry, multirun=True, **more)

    return jobs


@pytest.mark.parametrize(
    ("override", "values"),
    [
        ("seed=1,2", [1, 2]),
        ("seed=range(3)", [0, 1, 2]),
        ("seed=range(1,8,3)", [1, 4, 7]),
        ("seed=choice(5,4)", [5, 4]),
        ("seed=sort(3,1,2)", [1, 2, 3]),
        ("seed=7", [7]),
        ("+seed=1,2", [1, 2]),
    ],
)
def test_a_key_takes_each_of_its_values_in_their_order(sweep, override, values):
    assert [job.options.seed for job in sweep(override)] == values


def test_a_list_is_one_value_and_several_lists_are_several(sweep, make_job):
    assert make_job("dataset.pattern=[1,1]").dataset.values["pattern"] == (1, 1)
    jobs = sweep("dataset.pattern=[1,1],[1,0,0]")
    assert [job.dataset.values["pattern"] for job in jobs] == [(1, 1), (1, 0, 0)]


def test_a_choice_is_swept_by_names_or_by_a_pattern(sweep, registry):
    names = registry.names("model")
    assert [job.model.name for job in sweep("model=mlp,lstm")] == ["mlp", "lstm"]
    assert [job.model.name for job in sweep("model=glob(*)")] == names
    assert [job.model.name for job in sweep("model=glob(*,exclude=m*)")] == [n for n in names if n[0] != "m"]


def test_choices_times_values_vary_the_last_key_fastest(sweep):
    def points(*overrides):
        return [(job.model.name, job.options.seed) for job in sweep(*overrides)]

    assert points("model=lstm,mlp", "seed=4,3") == [("lstm", 4), ("lstm", 3), ("mlp", 4), ("mlp", 3)]
    assert points("seed=4,3", "model=lstm,mlp") == [("lstm", 4), ("mlp", 4), ("lstm", 3), ("mlp", 3)]


def test_of_one_key_given_twice_the_last_counts(sweep):
    assert [job.options.seed for job in sweep("seed=1,2", "seed=3")] == [3]


@pytest.mark.parametrize(
    ("overrides", "lines"),
    [
        (
            ["model.hidden_size=-1,4", "model.forget_bias=1,x"],
            [
                "^model.hidden_size=-1 model.forget_bias=1: model.hidden_size: expected int >= 1, got -1",
                "^model.hidden_size=-1 model.forget_bias=x: model.hidden_size: expected int >= 1, got -1",
                "^model.hidden_size=4 model.forget_bias=x: model.forget_bias: .*got 'x'",
                "sweep.skip_invalid=true trains the others",
            ],
        ),
        (
            ["model=rnn,mlp", "model.forget_bias=1"],
            [f"^model={m}: .* has no key 'forget_bias'.* add" for m in ("rnn", "mlp")],
        ),
        (["seed=range(50)", "model.forget_bais=1"], ["^model.forget_bais: .*Did you mean"]),
        (
            ["model=lstm,lstmm,mpl"],
            ["model=lstmm: .*Did you mean 'lstm'", "model=mpl: .*Did you mean 'mlp'", "sweep.skip_invalid=true"],
        ),
        (["model=glob(z*)"], [r"model=glob\(z\*\): no value matches"]),
        (["seed=glob(*)"], [r"seed=glob\(\*\): no value matches"]),
        (["trainer.lr=interval(0,1)"], [r"trainer.lr=interval\(0,1\): an interval has no points"]),
        (["seed=range(1000000000)"], [r"seed=range\(1000000000\): more than 100000 values"]),
        (["seed=shuffle(range(1000000000))"], ["more than 100000 values"]),
        (["trainer.lr=range(0,1,1e-300)"], ["more than 100000 values"]),
        (["trainer.lr=range(0,inf)"], ["more than 100000 values"]),
        (["seed=range(0,5,0)"], [r"seed=range\(0,5,0\): .*a step other than 0"]),
        (["trainer.lr=range(0,5.0,0)"], ["a step other than 0"]),
        (["trainer.lr=range(0,1,nan)"], ["a step other than 0"]),
        (
            ["seed=range(300)", "model.seed=range(300)", "trainer.seed=range(300)", "trainer.lr=1"],
            [r"the sweep over seed \(300\), model.seed \(300\), trainer.seed \(300\) has more than 100000 points"],
        ),
        (["seed=range(-25,0)"], [*(f"seed: .*got -{n}" for n in range(25, 5, -1)), "and 5 more errors"]),
    ],
)
def test_all_that_is_wrong_with_a_sweep_is_said_at_once_and_once(sweep, overrides, lines):
    with pytest.raises(ConfigError) as caught:
        sweep(*overrides)
    found = str(caught.value).splitlines()
    assert len(found) == len(lines)
    assert all(re.search(pattern, line) for pattern, line in zip(lines, found, strict=True)), found


@pytest.mark.parametrize(
    ("overrides", "composed"),
    [
        (["seed=range(5)", "trainer.lr=0.1,0.2"], 1),
        (["model=lstm,mlp", "trainer=adam,sgd", "seed=range(5)"], 5),
        (["experiment=nonlinearity"], 1),
        (["experiment=nonlinearity", "trainer=adam,sgd"], 3),
    ],
)
def test_each_combination_of_choices_is_composed_once_and_values_never(registry, monkeypatch, overrides, composed):
    """The plain defaults, or the experiment's own, are one combination more where labels are told apart from them."""
    calls, compose = [], composer.compose  # type: ignore[attr-defined]  # where it is used

    def counting(name, choices, **more):
        calls.append(tuple(choices))
        return compose(name, choices, **more)

    monkeypatch.setattr(composer, "compose", counting)
    compose_jobs(overrides, registry, multirun=True)
    assert len(calls) == len(set(calls)) == composed


def test_an_experiment_brings_its_plugins_its_values_and_its_sweep(sweep):
    jobs = sweep("experiment=nonlinearity")
    names = [(job.dataset.name, job.model.name, job.trainer.name, job.experiment) for job in jobs]
    assert names == [("moons", "mlp", "adam", "nonlinearity")] * 10
    points = [(job.model.values["activation"], job.options.seed) for job in jobs]
    assert points == [(activation, seed) for activation in ("tanh", "identity") for seed in range(5)]
    assert (jobs[0].label, jobs[6].label) == ("activation=tanh-seed=0", "activation=identity-seed=1")


@pytest.mark.parametrize(
    ("override", "points"),
    [
        ("seed=7", [("tanh", 7), ("identity", 7)]),
        ("model.activation=relu", [("relu", seed) for seed in range(5)]),
        ("++seed=8,9", [("tanh", 8), ("tanh", 9), ("identity", 8), ("identity", 9)]),
    ],
)
def test_the_command_line_replaces_keys_of_the_sweep_of_an_experiment(sweep, override, points):
    jobs = sweep("experiment=nonlinearity", override)
    assert [(job.model.values["activation"], job.options.seed) for job in jobs] == points


def test_an_experiment_without_multirun_is_one_job_and_says_that_it_could_be_more(make_job):
    with pytest.warns(UserWarning, match=r"a sweep over model\.activation\. This is one point of it; -m trains all"):
        job = make_job("experiment=nonlinearity", "seed=3")
    assert (job.experiment, job.model.values["hidden_size"], job.options.seed) == ("nonlinearity", 16, 3)


def test_no_experiment_is_the_default_one(make_job, sweep):
    assert make_job("experiment=null").parts == make_job().parts
    jobs = sweep("experiment=null,nonlinearity", "seed=0", "model.activation=relu", "model=mlp")
    assert [job.experiment for job in jobs] == ["default", "nonlinearity"]


@pytest.mark.parametrize("folder", ["configs", "my configs (1), and 'more'"])
def test_experiments_and_presets_of_a_folder_of_ones_own_work_by_name(registry, write_config, sweep, folder):
    write_config("model", "big", "defaults: [lstm]\nhidden_size: 64\n", folder)
    own = "# @package _global_\ndefaults: [{override /model: big}]\ntrainer: {lr: 0.5}\n"
    own += "hydra: {sweeper: {params: {model.num_layers: '1,2'}}}\n"
    path = str(write_config("experiment", "own", own, folder))
    jobs = sweep("experiment=own", searchpath=(path,))
    assert [job.model.values["num_layers"] for job in jobs] == [1, 2]
    assert (jobs[0].model.name, jobs[0].model.values["hidden_size"], jobs[0].trainer.values["lr"]) == ("lstm", 64, 0.5)
    names = [(job.model.name, job.label) for job in sweep("model=glob(*)", searchpath=(path,))]
    assert sorted(name for name, _ in names) == sorted(["lstm", *registry.names("model")])
    assert {("lstm", "model=lstm-hidden_size=64"), ("lstm", "model=lstm"), ("mlp", "model=mlp")} <= set(names)
    with pytest.raises(ConfigError, match=r"model=bgi: .*Did you mean 'big'.* Available: big, "):
        jobs_of(["model=bgi"], registry, searchpath=(path,))


def test_a_preset_is_the_same_job_as_its_values(registry, write_config, make_job):
    folder = write_config("model", "big", "defaults: [lstm]\nhidden_size: 64\n")
    (job,) = jobs_of(["model=big"], registry, searchpath=(str(folder),))
    assert job.parts == make_job("model.hidden_size=64").parts


def test_an_interpolation_is_resolved_before_it_is_checked(make_job, registry):
    job = make_job("model.hidden_size=${seed}", "seed=7", "trainer.lr=${model.init_scale}")
    assert (job.model.values["hidden_size"], job.trainer.values["lr"]) == (7, 1.0)
    with pytest.raises(ConfigError, match=r"^model\.hidden_size: expected int >= 1, got 0"):
        jobs_of(["model.hidden_size=${seed}"], registry)


@pytest.mark.parametrize(
    ("overrides", "label"),
    [
        ([], "default"),
        (["seed=0", "model=lstm", "runs=else", "checkpoint_every=5", "device=auto"], "default"),
        (["model.forget_bias=3"], "forget_bias=3"),
        (["trainer.lr=0.5", "seed=2"], "lr=0.5-seed=2"),
        (["seed=2", "model.seed=2"], "seed=2"),
        (["seed=2", "model.seed=3", "dataset.seed=1"], "dataset.seed=1-model.seed=3-seed=2"),
        (["model=mlp"], "model=mlp"),
        (["model=mlp", "model.hidden_size=32"], "model=mlp-hidden_size=32"),
        (["experiment=nonlinearity", "model.hidden_size=16"], "default"),
        (["experiment=nonlinearity", "model.hidden_size=8"], "hidden_size=8"),
    ],
)
@pytest.mark.filterwarnings("ignore:the experiment is a sweep")
def test_a_label_says_what_differs_from_the_experiments_own_defaults(make_job, overrides, label):
    assert make_job(*overrides).label == label


def test_a_value_given_as_its_default_is_not_in_the_label(make_job, registry):
    defaults = registry.get("model", "mlp").defaults
    same = [f"model.{key}={value}" for key, value in defaults.items()]
    assert make_job("model=mlp", *same).label == "model=mlp"


def test_a_label_names_what_is_swept_first_and_cuts_no_value(sweep):
    long = ["model=mlp", "model.activation=sigmoid", "trainer.max_steps=100", "trainer.batch_size=full"]
    for job in sweep(*long, "trainer.weight_decay=0.125,0.25"):
        assert job.label.startswith(f"weight_decay={job.trainer.values['weight_decay']}-model=mlp-")
        assert len(job.label) <= 64
        assert set(job.label.split("-")[2:]) < {"activation=sigmoid", "max_steps=100", "batch_size=full"}


def test_the_overrides_of_a_job_make_that_job_again(sweep, make_job):
    jobs = sweep("experiment=nonlinearity", "trainer.clip_norm=null,1", "runs='a b, c'", "+model.hidden_size=4")
    expected = ("model.activation=identity", "seed=4", "experiment=nonlinearity", "trainer.clip_norm=1")
    assert jobs[-1].overrides[:4] == expected
    assert replace(make_job(*jobs[-1].overrides), label=jobs[-1].label) == jobs[-1]
    assert jobs[-1].options.runs == "a b, c"
