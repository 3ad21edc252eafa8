"""What is refused before anything runs, in one line that names the nearest right thing, and what a job then holds."""

import sys

import pytest
import yaml
from contract.compose import jobs_of

from nnexp.base.errors import ConfigError
from nnexp.config import check_job as config
from nnexp.config.check_job import refuse_code
from nnexp.config.job import JobOptions, job_options_schema

TOP = (
    "Top-level keys: dataset, model, trainer, probe, experiment, seed, device, precision, runs, checkpoint_every, stack"
)
MISSPELT = ["model.forget_bais: model 'lstm' has no key 'forget_bais'", "Did you mean 'model.forget_bias'?"]

WRONG = [
    ("model.forget_bais=3", MISSPELT),
    ("+model.forget_bais=3", MISSPELT),
    ("++model.forget_bais=3", MISSPELT),
    ("++modle.x=1", ["modle.x: there is no such key. Did you mean 'model'?", TOP]),
    ("sede=1", ["sede: there is no such key. Did you mean 'seed'?", TOP]),
    ("model=lstmm", ["model=lstmm: there is no such model. Did you mean 'lstm'?", "Available: "]),
    ("trainer=adma", ["trainer=adma: there is no such trainer. Did you mean 'adam'?"]),
    ("model=null", ["there is no such model", "Available: "]),
    ("model=[lstm,mlp]", ["there is no such model", "Available: "]),
    ("model={_target_:os.system}", ["there is no such model", "Available: "]),
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
    ("precision=16", ["precision: expected one of 32, 64, bf16, got 16."]),
    ("runs=3", ["runs: expected str, got 3. Quote it if text is meant."]),
    ("hydra.run.dir=x", ["hydra.run.dir=x: ", "--config-dir adds a folder", "runs= sets the folder of runs"]),
    ("~model", ["~model: a key cannot be deleted. Set it, or omit it"]),
    ("model@other=lstm", ["model@other=lstm: choose a plugin with KIND=NAME"]),
    ("experiment=foo", ["experiment=foo: there is no such experiment.", "Available: ", "nonlinearity"]),
    ("experiment=nonlinearty", ["there is no such experiment. Did you mean 'nonlinearity'?"]),
    ("forget_bias", ["forget_bias: ", "Write KEY=VALUE"]),
    ("model.hidden_size=(", ["model.hidden_size=(: ", "Write KEY=VALUE, with quotes around"]),
    ("model.hidden_size=${nope}", ["nope", "model.hidden_size"]),
    ("+_target_=os.system", ["_target_: there is no such key."]),
    (f"seed={'9' * 5000}", ["seed=999", "...: not a key with a value.", "digits"]),
    (f"seed={'9' * 4000}", ["seed: expected int >= 0, got 999", "... (an integer has at most 64 bits)."]),
    (f"seed={2**63}", ["an integer has at most 64 bits"]),
    ("ünï", ["ünï: not a key with a value. Write KEY=VALUE"]),
    ("a=[1", ["a=[1: not a key with a value. Write KEY=VALUE"]),
    (f"seed={'[' * 5000}", ["seed=[[[", "...: not a key with a value."]),
    (f"{'k' * 5000}=1", ["kkk...: there is no such key."]),
    (f"model={'m' * 5000}", ["mmm...: there is no such model."]),
    ("model='null'", ["model=null: there is no such model."]),
    ("seed=range(1000000000)", ["seed has several values: add -m for a sweep"]),
    ("trainer.lr=range(0,1,1e-300)", ["trainer.lr has several values: add -m for a sweep"]),
    ("model.hidden_size=${model.hidden_size}", ["an interpolation ${...} has no value: Recursive"]),
    ("runs=true", ["""got True. Quote it if text is meant. In a shell: KEY="'TEXT'"."""]),
]


@pytest.mark.parametrize(("overrides", "parts"), WRONG, ids=[case[0][:40] for case in WRONG])
def test_a_wrong_override_is_answered_in_one_line_that_names_what_is_right(registry, overrides, parts):
    with pytest.raises(ConfigError) as caught:
        jobs_of(overrides.split(), registry)
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
    (
        "defaults: [{override /model: lstmm}]",
        "experiment=wrong: model=lstmm: there is no such model. Did you mean 'lstm'?",
    ),
    ("defaults: [wrong]", "experiment=wrong: it refers to itself"),
    ("defaults: 3", "experiment=wrong: "),
    ("experiment: another", "experiment=wrong: experiment: a file cannot hold this key."),
    ("hydra: null", "wrong.yaml: hydra: write hydra: {sweeper: "),
    ("hydra: {sweeper: null}", "wrong.yaml: hydra.sweeper: write hydra: {sweeper: "),
    ("hydra: {sweeper: {params: [1]}}", "wrong.yaml: hydra.sweeper.params: write hydra: {sweeper: "),
    (
        "hydra: {sweeper: {parms: {seed: 1}}}",
        "wrong.yaml: hydra.sweeper.parms: there is no such key. Did you mean 'params'?",
    ),
    ("hydra: {searchpath: [file:///tmp]}", "wrong.yaml: hydra.searchpath: there is no such key."),
    ("hydra: {sweeper: {params: {seed: '${oc.env:NOPE}'}}}", "experiment=wrong: "),
    ("hydra: {sweeper: {params: {seed: 'range(1000000000)'}}}", "experiment=wrong: seed=range(1000000000): more than"),
    ("hydra: {sweeper: {params: {experiment: 'a,b'}}}", "hydra.sweeper.params.experiment: "),
    ("model: &a [*a]", "wrong.yaml: *a: undefined or recursive alias."),
    (f"model: {'[' * 5000}", "wrong.yaml: a config has at most "),
    (f"seed: [{'1,' * 60_000}]", "wrong.yaml: a config has at most 100000 bytes"),
    (f"seed: {'9' * 5000}", "wrong.yaml: "),
    (f"seed: 0x{'f' * 5000}", "wrong.yaml: seed: an integer with more digits than Python can print."),
    ("seed: '${oc.env:NOPE}'", "Environment variable 'NOPE' not found"),
    ("- a", "wrong.yaml: a config must be a mapping"),
    ("text", "wrong.yaml: a config must be a mapping"),
    ("{1: 2}", "wrong.yaml: 1: a key must be text"),
    ("{1: 2, null: 3}", "wrong.yaml: "),
    ("'': 3", "'': there is no such key."),
    ("b'\xff'".encode().decode("unicode_escape")[2:3], "wrong.yaml: "),
    ("a: !!python/object/apply:os.system [x]", "wrong.yaml: "),
]


@pytest.mark.slow
@pytest.mark.parametrize(("text", "part"), EXPERIMENTS, ids=[case[0][:60] for case in EXPERIMENTS])
def test_a_file_is_checked_as_strictly_as_the_command_line(registry, write_config, text, part):
    folder = write_config("experiment", "wrong", f"# @package _global_\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        jobs_of(["experiment=wrong"], registry, searchpath=(str(folder),))
    assert "\n" not in str(caught.value)
    assert part in str(caught.value)


BOMB = "\n".join(["a0: &a0 [1]", *(f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9))])


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"model: {hidden_size: \xff}", "utf-8"),
        (BOMB.encode(), "aliases expanded"),
        (b"model: &a {hidden_size: &a [*a]}", "recursive alias"),
    ],
)
def test_a_file_that_would_be_too_much_is_refused_before_it_is_built(registry, write_config, content, part):
    folder = write_config("experiment", "wrong", "")
    path = folder / "experiment" / "wrong.yaml"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=part) as caught:
        jobs_of(["experiment=wrong"], registry, searchpath=(str(folder),))
    assert str(caught.value).startswith(f"{path}: ")


def test_aliases_within_bounds_and_files_that_say_nothing_are_good_configs(registry, write_config):
    folder = write_config("experiment", "good", "# @package _global_\nmodel: {num_layers: &a 2, hidden_size: *a}\n")
    write_config("experiment", "empty", "# @package _global_\n")
    aliased, empty = (
        jobs_of([f"experiment={name}"], registry, searchpath=(str(folder),))[0] for name in ("good", "empty")
    )
    assert (aliased.model.values["num_layers"], aliased.model.values["hidden_size"]) == (2, 2)
    assert empty.parts == jobs_of([], registry)[0].parts


@pytest.mark.parametrize("place", ["pkg://evilmod", "file:///tmp", "${oc.env:PLACE}"])
@pytest.mark.parametrize("name", ["config", "primary"])
def test_no_config_adds_places_to_search_and_none_is_imported(
    registry, write_config, tmp_path, monkeypatch, name, place
):
    (tmp_path / "evilmod.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PLACE", "pkg://evilmod")
    text = "defaults: [settings, {dataset: moons}, {model: mlp}, {trainer: adam}]\n"
    folder = write_config(".", name, f"{text}hydra: {{searchpath: ['{place}']}}\n")
    with pytest.raises(ConfigError, match=r"hydra\.searchpath: there is no such key.*--config-dir"):
        jobs_of([], registry, config_name=name, searchpath=(str(folder),))
    write_config(".", name, text)
    assert jobs_of([], registry, config_name=name, searchpath=(str(folder),))[0].model.name == "mlp"
    assert "evilmod" not in sys.modules


def test_a_file_without_the_package_of_an_experiment_is_refused_with_the_line_it_needs(registry, write_config):
    folder = write_config("experiment", "bare", "model: {hidden_size: 3}\n")
    with pytest.raises(ConfigError, match=r"^experiment=bare: .*# @package _global_"):
        jobs_of(["experiment=bare"], registry, searchpath=(str(folder),))


def test_a_choice_is_a_name_though_it_looks_like_a_number(registry, write_config):
    folder = write_config("experiment", "2026", "# @package _global_\nseed: 4\n")
    write_config("experiment", "true", "# @package _global_\nseed: 5\n")
    for typed in ("2026", "true", "'2026'"):
        (job,) = jobs_of([f"experiment={typed}"], registry, searchpath=(str(folder),))
        assert (job.experiment, job.options.seed) == (typed.strip("'"), 5 if typed == "true" else 4)


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
    assert tuple(choice.seed for choice in make_job(*overrides).parts) == seeds


@pytest.mark.parametrize("overrides", [[], ["model=mlp", "dataset=moons", "seed=3", "model.seed=1", "runs=else"]])
def test_the_plain_values_of_a_job_make_the_same_job_again(registry, make_job, overrides):
    job = make_job(*overrides)
    again = config.make_job(yaml.safe_load(yaml.safe_dump(job.plain())), registry)
    assert repr((again.parts, again.options)) == repr((job.parts, job.options))
    flat = job.flat()
    assert {key: flat[key] for key in ("model", "model.seed", "trainer.lr", "seed", "runs")} == {
        "model": job.model.name,
        "model.seed": job.model.seed,
        "trainer.lr": job.trainer.values["lr"],
        "seed": job.options.seed,
        "runs": job.options.runs,
    }


def test_the_settings_are_described_by_their_own_source():
    schema = job_options_schema()
    assert {name: parameter.default for name, parameter in schema.items()} == vars(JobOptions())
