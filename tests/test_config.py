"""What is refused before anything runs, in one line that names the nearest right thing, and what a job then holds."""

import pytest
import yaml

from nnexp import config
from nnexp.config import Settings, refuse_code, settings_schema
from nnexp.errors import ConfigError
from nnexp.sweeper import compose_jobs

TOP = "At the top are: dataset, model, trainer, experiment, seed, device, precision, runs, checkpoint_every."
MISSPELT = ["model.forget_bais: model 'lstm' has no key 'forget_bais'", "Did you mean 'model.forget_bias'?"]

WRONG = [
    ("model.forget_bais=3", MISSPELT),
    ("+model.forget_bais=3", MISSPELT),
    ("++model.forget_bais=3", MISSPELT),
    ("++modle.x=1", ["modle.x: there is no such key. Did you mean 'model'?", TOP]),
    ("sede=1", ["sede: there is no such key. Did you mean 'seed'?", TOP]),
    ("model=lstmm", ["model=lstmm: there is no such model. Did you mean 'lstm'?", "There is: "]),
    ("trainer=adma", ["trainer=adma: there is no such trainer. Did you mean 'adam'?"]),
    ("model=null", ["there is no such model", "There is: "]),
    ("model=[lstm,mlp]", ["there is no such model", "There is: "]),
    ("model={_target_:os.system}", ["there is no such model", "There is: "]),
    ("model.name=mlp", ["model.name: choose a plugin with model=NAME, one of "]),
    ("model.hidden_size=big", ["model.hidden_size: expected int >= 1, got 'big'."]),
    ("model.hidden_size=-4", ["model.hidden_size: expected int >= 1, got -4."]),
    ("model.hidden_size=64.0", ["model.hidden_size: expected int >= 1, got 64.0."]),
    ("model.hidden_size='64'", ["model.hidden_size: expected int >= 1, got '64'."]),
    ("model.hidden_size=true", ["model.hidden_size: expected int >= 1, got True."]),
    ("model.hidden_size={a:1}", ["model.hidden_size: expected int >= 1, got {'a': 1}."]),
    ("model.hidden_size=", ["model.hidden_size: expected int >= 1, got ''."]),
    ("trainer.lr=nan", ["trainer.lr: expected float > 0, got nan."]),
    ("trainer.lr=inf", ["trainer.lr: expected float > 0, got inf."]),
    (f"trainer.eps={10**400}", ["trainer.eps: expected float > 0, got 1000"]),
    ("trainer.batch_size=ful", ["expected int >= 1 or full, got 'ful'. Did you mean 'full'?"]),
    ("dataset.pattern=[1,2]", ["dataset.pattern: expected a list of (int >= 0 and <= 1), got [1, 2]."]),
    ("model.forget_bias=true", ["model.forget_bias: expected float or null, got True."]),
    ("model=mlp model.forget_bias=3", ["model 'mlp' has no key 'forget_bias'. A key of ", "lstm", "add model="]),
    ("model=mlp model.activation=reluu", ["expected one of tanh, relu, gelu,", "Did you mean 'relu'?"]),
    ("model.device=cpu", ["model 'lstm' has no key 'device'. Did you mean 'device'?"]),
    ("hidden_size=8", ["hidden_size: there is no such key. Did you mean 'model.hidden_size'?", TOP]),
    ("lr=0.1", ["lr: there is no such key. Did you mean 'trainer.lr'?", TOP]),
    ("seed=1,2", ["seed has several values: add -m for a sweep, or quote"]),
    ("model=lstm,mlp", ["model has several values: add -m for a sweep"]),
    ("seed=-1", ["seed: expected int >= 0, got -1."]),
    ("dataset.seed=null", ["dataset.seed: expected int >= 0"]),
    ("precision=16", ["precision: expected one of 32, 64, got 16."]),
    ("runs=3", ["runs: expected str, got 3. Quote it if text is meant."]),
    ("hydra.run.dir=x", ["hydra.run.dir=x: ", "--config-dir adds a folder", "runs= says where runs go"]),
    ("~model", ["~model: a key cannot be deleted. Set it, or leave it out"]),
    ("model@other=lstm", ["model@other=lstm: choose a plugin with KIND=NAME"]),
    ("experiment=foo", ["experiment=foo: there is no such experiment.", "There is: ", "nonlinearity"]),
    ("experiment=nonlinearty", ["there is no such experiment. Did you mean 'nonlinearity'?"]),
    ("forget_bias", ["forget_bias: ", "Write KEY=VALUE"]),
    ("model.hidden_size=(", ["model.hidden_size=(: ", "Write KEY=VALUE, with quotes around"]),
    ("model.hidden_size=${nope}", ["nope", "model.hidden_size"]),
    ("+_target_=os.system", ["_target_: there is no such key."]),
]


@pytest.mark.parametrize(("overrides", "parts"), WRONG, ids=[case[0][:40] for case in WRONG])
def test_a_wrong_override_is_answered_in_one_line_that_names_what_is_right(registry, overrides, parts):
    with pytest.raises(ConfigError) as caught:
        compose_jobs(overrides.split(), registry)
    message = str(caught.value)
    assert "\n" not in message
    assert len(message) < 300 + len(overrides)
    assert all(part in message for part in parts), message


EXPERIMENTS = [
    ("model: {_target_: os.system}", "model._target_: a config names plugins and gives values, never code."),
    ("model: {hidden_size: {_partial_: true}}", "model.hidden_size._partial_: a config names plugins"),
    ("_target_: os.system", "_target_: a config names plugins"),
    ("model: {forget_bais: 3}", MISSPELT[1]),
    ("model: {hidden_size: -4}", "model.hidden_size: expected int >= 1, got -4."),
    ("lr: 0.1", "Did you mean 'trainer.lr'?"),
    ("model: lstm", "no model is chosen. Add model=NAME, one of "),
    ("model: {name: lstmm}", "model=lstmm: there is no such model. Did you mean 'lstm'?"),
    ("model: [", "experiment/wrong.yaml"),
    ("defaults: [{override /model: lstmm}]", "lstmm"),
]


@pytest.mark.parametrize(("text", "part"), EXPERIMENTS, ids=[case[0] for case in EXPERIMENTS])
def test_a_file_is_checked_as_strictly_as_the_command_line(registry, write_config, text, part):
    folder = write_config("experiment", "wrong", f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        compose_jobs(["experiment=wrong"], registry, searchpath=(str(folder),))
    assert "\n" not in str(caught.value)
    assert part in str(caught.value)


def test_code_is_refused_however_deep_it_stands():
    refuse_code({"a": [{"b": 1}, [{"_b": 2, "c_": 3}]], 1: None})
    with pytest.raises(ConfigError, match=r"^a\.b\._args_: "):
        refuse_code({"a": [1, [{"b": {"_args_": 1}}]]})


def test_values_are_typed_as_their_parameters_say(make_job):
    job = make_job("trainer.lr=1", "trainer.batch_size=full", "dataset.pattern=[1,1]", "model.forget_bias=null")
    assert repr(job.trainer.values["lr"]) == "1.0"
    assert job.trainer.values["batch_size"] == "full"
    assert job.dataset.values["pattern"] == (1, 1)
    assert job.model.values["forget_bias"] is None


@pytest.mark.parametrize(
    ("overrides", "seeds"),
    [
        ([], (0, 0, 0)),
        (["seed=5"], (0, 5, 5)),
        (["seed=5", "model.seed=2"], (0, 2, 5)),
        (["seed=5", "model.seed=null", "trainer.seed=0", "dataset.seed=3"], (3, 5, 0)),
    ],
)
def test_a_seed_left_null_is_the_seed_of_the_job(make_job, overrides, seeds):
    assert tuple(choice.seed for choice in make_job(*overrides).choices) == seeds


@pytest.mark.parametrize("overrides", [[], ["model=mlp", "dataset=moons", "seed=3", "model.seed=1", "runs=else"]])
def test_the_plain_values_of_a_job_make_the_same_job_again(registry, make_job, overrides):
    job = make_job(*overrides)
    again = config.make_job(yaml.safe_load(yaml.safe_dump(job.plain())), registry)
    assert repr((again.choices, again.settings)) == repr((job.choices, job.settings))
    flat = job.flat()
    assert {key: flat[key] for key in ("model", "model.seed", "trainer.lr", "seed", "runs")} == {
        "model": job.model.name,
        "model.seed": job.model.seed,
        "trainer.lr": job.trainer.values["lr"],
        "seed": job.settings.seed,
        "runs": job.settings.runs,
    }


def test_the_settings_are_described_by_their_own_source():
    schema = settings_schema()
    assert {name: parameter.default for name, parameter in schema.items()} == vars(Settings())
