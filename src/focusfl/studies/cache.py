"""The finished runs of a study's folder, by what they follow from."""

import hashlib
import json
import re
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from focusfl import __version__
from focusfl.core.files import Damaged, check
from focusfl.core.fingerprint import fingerprint, package
from focusfl.core.models import save_model
from focusfl.simulation.step_sizes import tabled
from focusfl.studies import results
from focusfl.studies.config import Study
from focusfl.studies.results import Run
from focusfl.studies.study import RunGroup, run_groups

RUNS, MODELS, UNFINISHED = "runs", "models", "unfinished"


class ResultCache:
    """The finished runs of a folder, by their content; none of them if fresh."""

    def __init__(self, folder: Path, study: Study, fresh: bool = False):
        self.folder, self.study = folder / RUNS, study
        self._problem = fingerprint(study.problem)
        self._laws = {
            name: fingerprint(scenario.participation)
            for name, scenario in study.participation.items()
        }
        self._files: dict[str, Path] = {}  # by key of a run
        self._tables: dict[tuple, str] = {}  # of schedules, by algorithm and step
        self.damaged: list[str] = []  # files whose runs must be run again, and why
        for file in [] if fresh else sorted(self.folder.glob("*.parquet")):
            self._files |= dict.fromkeys(self._sound(file), file)

    def _sound(self, file: Path) -> list[str]:
        """The keys of runs that are kept in a file; none of a damaged one."""
        try:
            rows = [run.row for run in results.read_runs(file)]
            for row in rows:
                if row["model"] and self.study.models != "none":
                    with open(self.folder.parent / row["model"], "rb") as model:
                        check(Path(model.name), model)
            return [row["key"] for row in rows]
        except FileNotFoundError as error:
            why = f"{error.filename} is missing"
        except Damaged as error:
            why = str(error)
        self.damaged.append(f"{why}. Runs of {file.name} are run again.")
        return []

    def key(self, group: RunGroup, lr: Any, seed: int) -> str:
        """A name for a run that changes with anything it follows from."""
        study, scenario, name = self.study, group.participation, group.algorithm
        spec = study.algorithms[name]
        facts = [
            __version__, package(), self._problem, self._laws[scenario],
            fingerprint(spec.algorithm), spec.noise, study.rounds,
            sorted(part.sha256 for part in study.parts.values()),
            study.eval_every, study.per_client, study.on_empty, asdict(study.stop),
            study.models, *(scenario, name, group.local_steps, lr, seed),
            self._steps(name, lr),
        ]  # fmt: skip
        return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:16]

    def _steps(self, name: str, lr: Any) -> str | None:
        """A name for the steps of a schedule, by their values."""
        schedule = self.study.schedule_of(name)
        if not schedule:
            return None
        if (name, lr) not in self._tables:
            steps = tabled(schedule.at(lr), self.study.rounds).steps
            self._tables[name, lr] = fingerprint(steps)
        return self._tables[name, lr]

    def left(self) -> list[RunGroup]:
        """What is still to run of the study."""
        return [part for own in run_groups(self.study) for part in self._missing(own)]

    def _missing(self, group: RunGroup) -> list[RunGroup]:
        """The parts of a group that have not been run."""
        by_rates: dict[tuple, list[int]] = {}
        for seed in group.seeds:
            lrs = tuple(lr for lr in group.lrs if self.key(group, lr, seed) not in self._files)
            by_rates.setdefault(lrs, []).append(seed)
        return [
            group._replace(lrs=lrs, seeds=tuple(seeds)) for lrs, seeds in by_rates.items() if lrs
        ]

    def put(self, group: RunGroup, runs: list[Run]) -> list[Run]:
        """Keep the runs of a group, all or none of them; give them with their keys."""
        keys = self._keys(group)
        runs = [
            replace(
                run, row={"key": key, **run.row, "model": self._saved(key, run)},
                model=None,
            )
            for key, run in zip(keys, runs, strict=True)
        ]  # fmt: skip
        file = self.folder / file_name(keys)
        try:
            results.write_runs(file, runs)
        except BaseException:
            for run in runs:
                if run.row["model"]:
                    (self.folder.parent / run.row["model"]).unlink(missing_ok=True)
            raise
        self._files |= dict.fromkeys(keys, file)
        shutil.rmtree(self.unfinished(group), ignore_errors=True)
        return runs

    def unfinished(self, group: RunGroup) -> Path:
        """The folder in which a group keeps its checkpoints, if it does."""
        return self.folder / UNFINISHED / Path(file_name(self._keys(group))).stem

    def _keys(self, group: RunGroup) -> list[str]:
        return [self.key(group, lr, seed) for seed in group.seeds for lr in group.lrs]

    def _saved(self, key: str, run: Run) -> str | None:
        """Write the model of a run, if the study wants it; say under which name."""
        if self.study.models == "none" or run.model is None:
            return None
        whole = f"{run.row['participation']}-{run.row['algorithm']}"
        plain = re.sub(r"[^\w.-]+", "_", whole)
        name = f"{MODELS}/{plain}-seed{run.row['seed']}-{key}.safetensors"
        about = {field: str(run.row[field]) for field in results.IDENTITY}
        about |= {"key": key, "rounds": str(run.row["rounds"])}
        if self.study.models == "all":
            about["leaves"] = "(rounds + 1, ...), the model before round 0 first"
        save_model(self.folder.parent / name, run.model, about)
        return name

    def everything(self) -> list[Run]:
        """All runs of the study, in its order."""
        keys = [key for group in run_groups(self.study) for key in self._keys(group)]
        found: dict[str, Run] = {}
        for file in {self._files[key] for key in keys}:
            found |= {run.row["key"]: run for run in results.read_runs(file)}
        return [found[key] for key in keys]


def file_name(keys: list[str]) -> str:
    """Name the file of runs that are kept together, by their keys."""
    return hashlib.sha256(" ".join(keys).encode()).hexdigest()[:16] + ".parquet"
