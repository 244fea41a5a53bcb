"""Put the weights of a recorded run among those that the package brings, with a card made from its result."""

from pathlib import Path

import jax

from bsatnp import checkpoint, pretrained
from bsatnp.pretrained import Card
from paper.evaluation import digest
from paper.experiments import experiment as find
from paper.files import read
from paper.markdown import hardware
from paper.runner import Job

_PLANE = "The process varies over lengths of 0.1 to 0.6, its variance is 1; values of the context carry noise of 0.1."

#: What lengths, times and values of an experiment are measured in, for someone who has data of their own.
UNITS = {
    "gp": _PLANE,
    "gp-multiscale": _PLANE,
    "sphere": "Longitude and latitude in degrees; the process varies over 5 to 40 of them and its variance is 1.",
    "sir": "Cells are 1/16 apart; the classes are susceptible, infected, recovered.",
    "gneiting": "Space is [−1, 1]², time [0, 1]; values have a mean of 6 and a deviation of about 1.",
}


def publish(job: Job, version: int = 1, folder: Path = pretrained.WEIGHTS) -> Card:
    """Copy a trained model into the package.

    Raises:
        FileNotFoundError: the run is not finished.
        ValueError: weights that are not those of the result; a version that is taken; an experiment on others' data.
    """
    if job.experiment not in UNITS:
        raise ValueError(f"`experiment` must be one of {sorted(UNITS)}, got '{job.experiment}'.")
    for path in (job.result, job.trained):
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing: finish `{job.command}` first.")
    result = read(job.result)
    if digest(job.trained) != result["weights"]:
        raise ValueError(f"{job.trained} must hold the weights of {job.result}, got others.")
    model = checkpoint.load(job.trained)
    tasks = find(job.experiment).preset(job.preset, job.data).train
    example = tasks(0, key=jax.random.key(0)).ctx
    kept = ("nll", "mae", "rmse", "accuracy", "crps", "coverage")
    exact = result["exact"] or {}
    tests = result["tests"].items()
    scores = {domain: {name: found[name] for name in kept if name in found} for domain, found in tests}
    for domain, best in exact.items():  # of the first batches of the test alone, where the exact posterior was found
        over = f"first {best['batches']} batches"
        scores[domain] |= {f"exact nll, {over}": best["nll"], f"gap to it, {over}": best["gap"]}
    return pretrained.add(
        model,
        f"{job.experiment}-{job.model}-v{version}",
        folder,
        title=result["title"],
        task=result["streams"]["train"],
        index={name: int(value.shape[-1]) for name, value in model.seen(example).index.items()},
        out=int(model.head.out),
        units=UNITS[job.experiment],
        budget={
            "preset": job.preset,
            "steps": result["steps"],
            "tasks per step": int(example.mask.shape[0]),
            "parameters": result["parameters"],
            "seconds": round(result["train_seconds"]),
            "on": hardware(*result["hardware"]),
        },
        scores=scores,
        source={"command": f"`{job.command}`", "commit": result["commits"][-1]},
    )
