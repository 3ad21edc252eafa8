"""Runs a plan in this process, one cohort after another: what fails costs its own run only."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from nnexp.create import refer
from nnexp.errors import RecordError
from nnexp.heap import kept
from nnexp.plan import Cohort, Planned, make_runs
from nnexp.registry import Registry
from nnexp.stop import Stop
from nnexp.tell import tell

if TYPE_CHECKING:
    from nnexp.datasets import Datasets


def launch(cohorts: list[Cohort], registry: Registry, stop: Stop, *, quiet: bool = False) -> list[Planned]:
    """Train what is not done; gives the jobs that have a run now, those that were done before among them, in order.

    In a sweep the end of each cohort is told when it comes. After a signal nothing new is begun.
    """
    return Launcher(cohorts, registry, stop, quiet).run()


class Launcher:
    """The progress of one plan."""

    def __init__(self, cohorts: list[Cohort], registry: Registry, stop: Stop, quiet: bool) -> None:
        self.cohorts, self.registry, self.stop, self.quiet = cohorts, registry, stop, quiet
        self.num_jobs = sum(map(len, cohorts))
        self.num_seen = 0
        self.datasets: Datasets | None = None

    def run(self) -> list[Planned]:
        is_sweep = self.num_jobs > 1
        done = sum(planned.is_done for cohort in self.cohorts for planned in cohort)
        if done and not self.quiet:
            tell(f"{done} of {self.num_jobs} jobs had ended before." if is_sweep else "this job had ended before.")
        begun: list[Planned] = []
        for cohort in self.cohorts:
            left = [planned for planned in cohort if not planned.is_done]
            if left and self.stop.requested:
                continue
            begun += self._refer([planned for planned in cohort if planned.is_done])
            if left:
                label = self._label(cohort) if is_sweep else left[0].job.label
                try:
                    self._train(left, label, len(cohort) > 1)
                except (RecordError, OSError) as error:
                    tell(f"{label}: {error}")
                trained = self._refer([planned for planned in left if planned.found is not None])
                if is_sweep and not self.quiet:
                    tell_ends(trained, label)
                begun += trained
            self.num_seen += len(cohort)
        missing = self.num_jobs - len(begun)
        if missing and self.stop.requested:
            tell(f"{missing} of {self.num_jobs} jobs were not begun.")
        return sorted(begun, key=lambda planned: planned.number)

    def _refer(self, cohort: Cohort) -> Cohort:
        """Those of a cohort whose run is there; where it lies under another experiment, theirs says so."""
        begun = []
        for planned in cohort:
            try:
                planned.run.read()
                refer(planned.job, planned.run)
                begun.append(planned)
            except (RecordError, OSError) as error:  # this job's directory; the others have their own
                tell(f"{planned.job.label}: left out: {error}")
        return begun

    def _train(self, cohort: Cohort, label: str, is_cohort: bool) -> None:
        """Train jobs that are not done, holding the locks of their directories."""
        with kept("nnexp.fit"):
            from nnexp.datasets import Datasets  # imports torch, and the next Lightning: only when something trains
            from nnexp.fit import Fit, torch_device
        from nnexp.progress import Progress

        self.datasets = self.datasets or Datasets()
        first = cohort[0].job
        torch_device(first.settings.device)  # before a directory is made
        progress = Progress(label, first.trainer.values.get("max_steps", 0), self.quiet)
        held: Cohort = []
        try:
            make_runs(cohort)
            held += (planned for planned in cohort if _is_held(planned))
            left = [planned for planned in held if not planned.is_done]  # another process may just have finished one
            if left:
                fit = Fit(registry=self.registry, stop=self.stop, progress=progress, datasets=self.datasets)
                fit.train(left, is_cohort)
        finally:
            progress.close()
            for planned in held:
                planned.run.unlock()

    def _label(self, cohort: Cohort) -> str:
        """Which jobs of the sweep these are, and which they are all together."""
        first, last = self.num_seen + 1, self.num_seen + len(cohort)
        if len(cohort) == 1:
            return f"{first}/{self.num_jobs} {cohort[0].job.label}"
        return f"{first}-{last}/{self.num_jobs} {' '.join(choice.name for choice in cohort[0].job.choices)}"


def _is_held(planned: Planned) -> bool:
    """Whether the run directory, made where there is none, is locked for this process now."""
    try:
        planned.run.lock()
        return True
    except (RecordError, OSError) as error:
        tell(f"left out: {error}")
        return False


def tell_ends(cohort: Cohort, label: str) -> None:
    """How many lanes ended how, and what is to be said of single ones."""
    facts = [planned.run.read() for planned in cohort]
    if len(cohort) > 1:
        counts = Counter(str(each["status"]) for each in facts)
        paths = ", ".join(sorted({str(each["path"]) for each in facts if each.get("path")}))
        ends = ", ".join(f"{count} {status}" for status, count in counts.items())
        tell(f"{label}: {ends}" + (f" ({paths})" if paths else ""))
    for planned, each in zip(cohort, facts, strict=True):
        name = label if len(cohort) == 1 else planned.job.label
        error = f": {each['error'].get('message')}" if each.get("error") else ""
        if len(cohort) == 1 or each["status"] != "finished":
            tell(f"{name}: {each['status']} at step {each.get('steps', 0)}{error}")
