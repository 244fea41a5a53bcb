"""Run the paper's experiments and report them: `python -m paper run gneiting --model bsa-tnp-bias`."""

import os

# Beside other work, threads of OpenBLAS that wait for each other make a small Cholesky factor many times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse  # noqa: E402
import sys  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

from paper.folders import PAPER, RESULTS, RUNS  # noqa: E402

#: Names of budgets; an experiment has some of them.
PRESETS = ("full", "lite", "lite-paper-rate", "lite-no-warmup", "hour")


def main(words: list[str] | None = None) -> int:
    """Parse the command line and do what it says."""
    options = _parser().parse_args(words)
    try:
        return options.do(options)
    except ImportError as error:
        print(_without(error), file=sys.stderr)
    except OSError as error:
        print(f"'{error.filename}': {error.strerror}." if error.filename else error, file=sys.stderr)
    except (ValueError, FloatingPointError) as error:
        print(error, file=sys.stderr)
    return 2


def _without(error: ImportError) -> str:
    """What to do about a package that is not there."""
    if "pip install" in str(error):
        return str(error)
    return f'{error}: `pip install -e ".[paper]"` in the repository installs what the experiments need.'


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    commands = parser.add_subparsers(required=True)
    results, runs, data, budget, trained = (argparse.ArgumentParser(add_help=False) for _ in range(5))
    results.add_argument("--results", type=Path, default=RESULTS, help="folder of results; paper/results if not given")
    runs.add_argument("--runs", type=Path, default=RUNS, help="folder of trainings; runs if not given")
    data.add_argument("--data", type=Path, help="folder of the real data, where an experiment reads some")
    trained.add_argument("--model", required=True, help="its name; `python -m paper list` shows all")
    trained.add_argument("--seed", type=int, default=0)
    what = "the paper's budget, or less; full if not given; others than full and lite are of gp alone"
    budget.add_argument("--preset", choices=PRESETS, default="full", help=what)

    def command(name: str, do: Callable[[argparse.Namespace], int], what: str, *parents: argparse.ArgumentParser):
        found = commands.add_parser(name, help=what, parents=parents)
        found.set_defaults(do=do)
        return found

    what = "train and test one model, or go on where it was stopped"
    run = command("run", _run, what, trained, budget, data, results, runs)
    run.add_argument("experiment")
    run.add_argument("--minutes", type=float, help="stop training after this long; run again to go on")
    run.add_argument("--devices", type=int, default=1, help="how many share every batch; 1 if not given")
    run.add_argument("--quiet", action="store_true", help="show no progress")
    what = "test Gaussian processes fitted to each task apart"
    apart = command("baseline", _baseline, what, budget, data, results, runs)
    apart.add_argument("experiment")
    apart.add_argument("--method", required=True, help="gp-known, gp-fitted (tinygp) or svgp (GPJax)")
    apart.add_argument("--batches", type=int, default=4, help="how many test batches; 4 if not given")
    apart.add_argument("--tune", action="store_true", help="print how settings of svgp score on 4 validation tasks")
    what = "score and time a trained SIR model on larger lattices"
    scaling = command("scaling", _scaling, what, trained, budget, results, runs)
    scaling.add_argument("--cells", type=int, nargs="+", default=(128, 256, 512, 1024), help="along each axis")
    scaling.add_argument("--samples", type=int, default=8, help="of each lattice")
    what = "write tables and curves; of paper/results into paper, the map of README.md too"
    report = command("report", _report, what, results)
    report.add_argument("--out", type=Path, default=PAPER, help="folder for REPORT.md and figures/; paper if not given")
    what = "draw the paper's figures from trained models and results"
    figures = command("figures", _figures, what, data, results, runs)
    figures.add_argument("--only", nargs="+", help="gp, gp-multiscale, sphere, sir, era5, convergence, ratios")
    figures.add_argument("--out", type=Path, default=PAPER / "figures", help="folder; paper/figures if not given")
    what = "put the weights of a recorded run into the package, with their card"
    publish = command("publish", _publish, what, trained, budget, results, runs)
    publish.add_argument("experiment")
    publish.add_argument("--version", type=int, default=1)
    what = "operations and memory of all models on the paper's 2-D GP batch"
    flops = command("flops", _flops, what, results)
    flops.add_argument("--model", action="append", help="only this one; may be given several times")
    flops.add_argument("--batch", type=int, default=8, help="tasks in the batch")
    flops.add_argument("--time", action="store_true", help="also time them, and keep what was found of all")
    command("list", _list, "experiments, their budgets and models")
    return parser


def _job(options: argparse.Namespace, experiment: str, data: Path | None = None) -> Any:
    """The row of a table that the words name."""
    from paper.runner import Job

    folders = {"data": data, "results": options.results, "runs": options.runs}
    return Job(experiment, options.model, options.preset, options.seed, **folders)


def _run(options: argparse.Namespace) -> int:
    from paper.runner import run

    job = _job(options, options.experiment, options.data)
    result = run(job, devices=options.devices, minutes=options.minutes, progress=not options.quiet)
    if result is None:
        return 3
    _say(options.experiment, job.name, result)
    return 0


def _baseline(options: argparse.Namespace) -> int:
    from paper.tasks_apart import run, tune

    asked = options.experiment, options.method, options.preset
    if options.tune:
        for settings, found in tune(*asked, data=options.data):
            print(f"{settings}: NLL {found['nll']:.3f}, RMSE {found['rmse']:.3f}", flush=True)
        return 0
    result = run(
        *asked,
        batches=options.batches,
        data=options.data,
        results=options.results,
        runs=options.runs,
        progress=lambda done, count: print(f"{done} of {count} batches", file=sys.stderr),
    )
    _say(options.experiment, options.method, result)
    return 0


def _say(experiment: str, name: str, result: dict[str, Any]) -> None:
    for domain, found in result["tests"].items():
        print(f"{experiment} {name} {domain}: NLL {found['nll']:.4f}")


def _scaling(options: argparse.Namespace) -> int:
    from paper import scaling

    scaling.run(_job(options, "sir"), cells=options.cells, samples=options.samples, progress=print)
    return 0


def _report(options: argparse.Namespace) -> int:
    from paper import benchmarks, contents
    from paper.benchmarks import buckets, scale
    from paper.drawing import curves
    from paper.report import complexity, load, render

    folder, out = options.results, options.out
    results, benches = load(folder), benchmarks.load()
    if not results:
        raise ValueError(f"`--results` must be a folder with results of `python -m paper run`, got '{folder}'.")
    out.mkdir(parents=True, exist_ok=True)
    text = render(results) + complexity(folder)
    parts = [text.rstrip("\n"), *benchmarks.tables(benches), *scale.table(), *buckets.table()]
    (out / "REPORT.md").write_text("\n".join(parts) + "\n")
    made = [out / "REPORT.md"]
    own = (folder.resolve(), out.resolve()) == (RESULTS, PAPER)
    try:
        made += [*curves.convergence(results, out / "figures"), *curves.ratios(benches, out / "figures")]
        if own:
            readme = out / "README.md"
            readme.write_text(contents.rewrite(readme.read_text(), results, out))
            made.append(readme)
    except ImportError as error:
        print(f"Figures and the map of README.md were left out. {_without(error)}", file=sys.stderr)
    print("\n".join(map(str, made)))
    return 0


def _figures(options: argparse.Namespace) -> int:
    from paper.drawing.everything import draw
    from paper.report import load

    found = draw(options.runs, load(options.results), options.out, data=options.data, only=options.only)
    for name, made in found.items():
        print(f"{name}: {made}" if isinstance(made, str) else "\n".join(str(path) for path in made))
    return 0


def _publish(options: argparse.Namespace) -> int:
    from paper.publish import publish

    print(publish(_job(options, options.experiment), options.version))
    return 0


def _flops(options: argparse.Namespace) -> int:
    from paper.flops import measure, table
    from paper.runner import prepare, write

    kept, file = options.time and options.batch == 8 and not options.model, options.results / "flops.json"
    if kept:
        prepare(file)
    found = measure(options.model, batch=options.batch, calls=3 if options.time else 0)
    print("\n".join(table(found)))
    if kept:
        write(file, found)
    return 0


def _list(options: argparse.Namespace) -> int:
    from paper.experiments import MODULES, experiment

    del options
    for name in MODULES:
        found = experiment(name)
        print(f"{name} ({', '.join(found.presets)}): {', '.join(found.models)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
