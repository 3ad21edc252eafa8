"""Probes chosen by a command and by files."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from contract.compose import jobs_of, sweep_of

from nnexp.base.errors import ConfigError
from nnexp.rundir.fingerprint import job_fingerprint

pytestmark = pytest.mark.slow


TWO = "probe=[gradient_norm,filters]"


def chosen(registry, *overrides: str, **more) -> dict[str, dict]:
    (job,) = jobs_of(list(overrides), registry, **more)
    return {choice.name: choice.values for choice in job.probes}


def test_they_are_chosen_by_a_list_by_one_name_or_not_at_all(registry) -> None:
    assert list(chosen(registry, TWO)) == ["gradient_norm", "filters"]
    assert list(chosen(registry, "probe=filters")) == ["filters"]
    for none in ("probe=[]", "probe=null"):
        assert chosen(registry, none) == {}
    assert chosen(registry) == {}
    assert chosen(registry, TWO, "probe.filters.every=7")["filters"]["every"] == 7
    assert list(chosen(registry, "probe=[filters,filters]")) == ["filters"]
    assert list(chosen(registry, "probe=all", "probe.filters.every=3")) == registry.names("probe")


def test_a_single_job_has_those_it_is_given_where_neither_the_command_nor_a_file_chooses(
    registry, write_config
) -> None:
    text = "# @package _global_\ndefaults:\n  - override /probe: [filters]\nprobe:\n  filters: {every: 9}\n"
    folder = str(write_config("experiment", "own", text))
    write_config("experiment", "none", "# @package _global_\ndefaults:\n  - override /probe: []\n")
    write_config("experiment", "values", "# @package _global_\nprobe: {sample: {every: 5}}\n")
    write_config("experiment", "every", "# @package _global_\ndefaults:\n  - override /probe: [all]\n")
    given: dict[str, Any] = {"probes": ("gradient_norm", "sample"), "searchpath": (folder,)}
    assert list(chosen(registry, **given)) == ["gradient_norm", "sample"]
    assert list(chosen(registry, "probe.sample.every=3", **given)) == ["gradient_norm", "sample"]
    assert chosen(registry, "experiment=own", **given) == {"filters": {"every": 9}}
    assert list(chosen(registry, "experiment=own", "probe=[]", **given)) == []
    assert chosen(registry, "experiment=own", TWO, **given)["filters"] == {"every": 9}
    assert chosen(registry, "experiment=none", **given) == {}
    valued = chosen(registry, "experiment=values", **given)
    assert (list(valued), valued["sample"]["every"]) == (["gradient_norm", "sample"], 5)
    assert list(chosen(registry, "experiment=every", **given)) == registry.names("probe")
    sweep = sweep_of(["experiment=own,null", "seed=0,1"], registry, multirun=True, **given)
    assert [[choice.name for choice in job.probes] for job in sweep.jobs] == [["filters"]] * 2 + [[]] * 2


def test_the_config_of_a_run_composes_to_the_same_probes(registry, write_config) -> None:
    (job,) = jobs_of([TWO, "probe.filters.every=7"], registry)
    folder = write_config(".", "run", yaml.safe_dump(job.plain(), sort_keys=False))
    (again,) = jobs_of([], registry, config_name="run", searchpath=(str(folder),))
    assert again.probes == job.probes
    assert again.plain() == job.plain()


def test_they_are_no_part_of_what_a_job_is(registry) -> None:
    jobs = [jobs_of(overrides, registry)[0] for overrides in ([], [TWO], [TWO, "probe.filters.every=7"])]
    assert len({job_fingerprint(job, registry) for job in jobs}) == 1
    assert len({job.label for job in jobs}) == 1
    assert not any("probe" in key for job in jobs for key in job.flat())


WRONG = {
    "probe=[filter]": ["probe=filter: there is no such probe", "Did you mean 'filters'?"],
    "probe=filters probe.filters.evry=3": ["probe 'filters' has no key 'evry'", "Did you mean 'probe.filters.every'?"],
    "probe=filters probe.filters.every=0": ["probe.filters.every: expected int >= 1 or one of log, ends, got 0"],
    "probe=filters probe.sample.every=3": ["probe 'sample' is not chosen", "Add probe=[filters, sample]"],
    "probe.sampel.every=3": ["there is no such probe", "Did you mean 'sample'?"],
    "probe.filters=3": ["probe.filters"],
    "probe=filters +probe.filters.x.y=3": ["probe.filters.x.y"],
    "probe={a:1}": ["probe="],
    "~probe": ["cannot be deleted"],
    "probe=filters,sample": ["not swept", "probe=[NAME,NAME]"],
    "probe=filters probe.filters.every=1,2": ["not swept"],
    "probe=[[filters]]": ["probe="],
    "probe=filters probe.filters=5": ["probe.filters is a group of keys", "Set one of probe.filters.every"],
}


@pytest.mark.parametrize("multirun", [False, True])
@pytest.mark.parametrize("overrides", WRONG)
def test_what_is_wrong_is_answered_in_one_line(registry, overrides: str, multirun: bool) -> None:
    with pytest.raises(ConfigError) as caught:
        jobs_of(overrides.split(), registry, multirun=multirun)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in WRONG[overrides]), message


def test_a_file_that_names_one_there_is_not_is_told_the_nearest(registry, write_config) -> None:
    text = "# @package _global_\ndefaults:\n  - override /probe: [filtres]\n"
    folder = str(write_config("experiment", "bad", text))
    with pytest.raises(ConfigError, match=r"experiment=bad: probe=filtres: .*Did you mean 'filters'"):
        jobs_of(["experiment=bad"], registry, searchpath=(folder,))


@pytest.mark.parametrize(
    "text", ["probe: 3", "probe: [filters]", "probe: {filters: 3}", "probe: {filters: {_target_: os.x}}"]
)
def test_a_file_that_names_them_wrongly_is_refused(registry, write_config, text: str) -> None:
    folder = str(write_config("experiment", "bad", f"# @package _global_\n{text}\n"))
    with pytest.raises(ConfigError) as caught:
        jobs_of(["experiment=bad"], registry, searchpath=(folder,))
    assert "\n" not in str(caught.value)
