"""Train every dataset with every model, and print a Markdown table beside baselines that need no model.

The baseline is the share of the majority class for classification, the variance for regression, and the better of the
unigram and bigram frequencies of the training text for predicting the next character.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nnexp.answers import make_data
from nnexp.base import ConfigError, NnexpError, StopRequest, print_err, print_out, write_atomically
from nnexp.commands.arguments import Parser
from nnexp.config import Job, compose_sweep
from nnexp.data import DataSpec, Split
from nnexp.execution import plan_cohorts, run_plan
from nnexp.registry import Registry, discover
from nnexp.rundir import PlannedRun


def baselines(data: DataSpec, train: Split, test: Split) -> dict[str, tuple[str, float]]:
    """Return name and value of the baseline for each metric of a dataset that the table shows."""
    if data.per_step and data.target == "class":
        return {f"{name}/loss": text_baseline(data, train, split) for name, split in (("train", train), ("test", test))}
    if data.target == "class":
        return {"test/accuracy": ("majority", int(test[1].long().bincount().max()) / len(test[1]))}
    return {"test/loss": ("variance", float(test[1].var()))}


def text_baseline(data: DataSpec, train: Split, split: Split) -> tuple[str, float]:
    """Return name and cross-entropy, in nats per prediction, of the better of a unigram and a bigram model.

    Both are fitted on `train` with add-one smoothing and evaluated on `split`.
    """
    counts = _bigrams(data, train) + 1
    observed = _bigrams(data, split)
    probabilities = {"unigram": counts.sum(0) / counts.sum(), "bigram": counts / counts.sum(1, keepdim=True)}
    losses = {name: float(-(observed * p.log()).sum() / observed.sum()) for name, p in probabilities.items()}
    name = min(losses, key=lambda key: losses[key])
    return name, losses[name]


def _bigrams(data: DataSpec, split: Split) -> Tensor:
    """Return the counts of each target after each token, (vocab, outputs)."""
    total = torch.zeros(data.vocab * data.outputs, dtype=torch.float64)
    # In chunks: the windows are overlapping views, much larger than the text once copied.
    for x, y in zip(*(t.split(4096) for t in split[:2]), strict=True):
        total += (x.long() * data.outputs + y.long()).flatten().bincount(minlength=len(total))
    return total.view(data.vocab, data.outputs)


def rows(finished: Sequence[PlannedRun], registry: Registry) -> list[list[str]]:
    """Return the rows of the table: for each dataset and metric the baseline and each model's mean over seeds."""
    models = list(dict.fromkeys(item.job.model.name for item in finished))
    groups: dict[tuple[Any, ...], list[PlannedRun]] = {}
    for item in finished:
        dataset = item.job.dataset
        groups.setdefault((dataset.name, *map(str, dataset.values.values())), []).append(item)
    table = [["dataset", "metric", "baseline", *models], ["---"] * (3 + len(models))]
    for items in groups.values():
        if all(item.run.status != "finished" for item in items):
            table.append([title(items[0].job, registry), "", "", *["failed"] * len(models)])
            continue
        data = make_data(items[0].job, registry)
        for metric, (name, value) in baselines(data.spec, data.train, data.test).items():
            cells = [_cell(items, model, metric, value) for model in models]
            table.append([title(items[0].job, registry), metric, f"{name} {value:.3f}", *cells])
    return table


def title(job: Job, registry: Registry) -> str:
    """Return the name of a job's dataset, followed by the values that differ from its defaults."""
    defaults = registry.get("dataset", job.dataset.name).defaults
    changed = [str(Path(str(v)).name) for key, v in job.dataset.values.items() if v != defaults[key]]
    return " ".join([job.dataset.name, *changed])


def _cell(items: Sequence[PlannedRun], model: str, metric: str, baseline: float) -> str:
    """Return the mean over seeds as text, struck through where it does not beat the baseline."""
    runs = [item.run.read() for item in items if item.job.model.name == model]
    values = [run["metrics"][metric] for run in runs if run["status"] == "finished"]
    if not values:
        return "failed"
    mean = statistics.mean(math.inf if value is None else value for value in values)
    text = f"{mean:.3f}"
    is_better = mean > baseline if metric.endswith("accuracy") else mean < baseline
    return text if is_better else f"~~{text}~~"


def markdown(table: Sequence[Sequence[str]]) -> str:
    """Return the rows as a Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in table)


def write(path: Path, text: str | None) -> None:
    """Replace the text between the markers `<!-- pairs -->` and `<!-- end of pairs -->` of a file.

    Args:
        path: the file.
        text: the new text; None only checks the file.

    Raises:
        NnexpError: where the file cannot be read or has no markers.
    """
    begin, end = "<!-- pairs -->\r?\n", "<!-- end of pairs -->"
    try:
        old = path.read_bytes().decode()  # line endings stay
    except (OSError, UnicodeDecodeError) as error:
        raise NnexpError(f"{path} cannot be read: {error}.") from None
    if not re.search(f"{begin}.*{end}", old, flags=re.DOTALL):
        raise NnexpError(f"{path} has no place for the table. Add a line <!-- pairs --> and after it a line {end}.")
    if text is not None:
        new = re.sub(f"({begin}).*?{end}", lambda found: f"{found[1]}{text}\n{end}", old, flags=re.DOTALL)
        write_atomically(path, new.encode())


def by_dataset(overrides: Sequence[str]) -> list[list[str]]:
    """Return the overrides of one sweep for each `dataset=`; `dataset=chartext dataset.path=FILE` is one of them."""
    datasets = [text for text in overrides if text.startswith("dataset=")] or ["dataset=glob(*)"]
    others = [text for text in overrides if not text.startswith("dataset=")]
    return [[*re.split(r" (?=[\w.]+=)", dataset), *others] for dataset in datasets]


def check_seeds_only(jobs: Sequence[Job]) -> None:
    """Raise ConfigError where a dataset and a model have jobs that differ in more than seeds: a cell is their mean."""
    settings: dict[tuple[Any, ...], set[str]] = {}
    for job in jobs:
        pair = job.dataset.name, str(job.dataset.values), job.model.name
        settings.setdefault(pair, set()).add(
            str([job.model.values, job.trainer.name, job.trainer.values, job.options.precision])
        )
    for (dataset, _, model), found in settings.items():
        if len(found) > 1:
            reason = f"{dataset} with {model} has {len(found)} settings, and a cell is a mean over seeds"
            raise ConfigError(f"{reason}. Give each key but seeds one value.")


def main(argv: Sequence[str]) -> int:
    """Train the pairs that are not finished yet, print or write the table, and return the exit code."""
    parser = Parser(prog="nnexp pairs", description=__doc__)
    parser.add_argument("--write", type=Path, help="write the table between the markers of this file")
    parser.add_argument("overrides", nargs="+", help="as for nnexp -m; dataset= may be given several times")
    given = parser.parse_intermixed_args(argv)
    torch.set_num_threads(1)
    registry, stop = discover(), StopRequest()
    if given.write:
        write(given.write, None)  # fail before training
    sweeps = [compose_sweep(overrides, registry, multirun=True) for overrides in by_dataset(given.overrides)]
    for note in dict.fromkeys(note for sweep in sweeps for note in sweep.notes):
        print_err(note)
    for sweep in sweeps:
        sweep.check()
    jobs, options = [job for sweep in sweeps for job in sweep.jobs], sweeps[0].options
    check_seeds_only(jobs)
    if options.dry_run:
        raise ConfigError("sweep.dry_run=true: pairs trains. Use it with nnexp -m instead.")
    with stop.handling():
        cohorts = plan_cohorts(jobs, registry, retry_statuses=("failed",), rerun=options.rerun)
        try:
            finished = run_plan(cohorts, registry, stop, options)
        except KeyboardInterrupt:
            print_err("stopped at once. The same command continues from the last checkpoints.")
            return stop.exit_code
    if stop.requested:
        print_err("interrupted. The same command continues.")
        return stop.exit_code
    text = markdown(rows(finished, registry))
    write(given.write, text) if given.write else print_out(text)
    return 0 if all(item.run.status == "finished" for item in finished) else 1
