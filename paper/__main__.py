"""Run the paper's experiments and report them: `python -m paper run gneiting --model bsa-tnp-bias`."""

import os

# Beside other work, threads of OpenBLAS that wait for each other make a small Cholesky factor many times slower.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse  # noqa: E402
import sys  # noqa: E402
from pathlib import Path  # noqa: E402


def main(words: list[str] | None = None) -> int:
    """Parse the command line and do what it says."""
    options = _parser().parse_args(words)
    return options.do(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m paper", description=__doc__)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="train and test one model, or go on where it was stopped")
    run.add_argument("experiment")
    run.add_argument("--model", required=True, help="its name; `python -m paper list` shows all")
    run.add_argument("--preset", choices=("full", "lite", "hour"), default="full", help="the paper's budget, or less")
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--data", type=Path, help="folder of the real data, where an experiment reads some")
    run.add_argument("--results", type=Path, help="folder of the results; paper/results when left out")
    run.add_argument("--runs", type=Path, help="folder of training states and models; runs when left out")
    run.add_argument("--minutes", type=float, help="stop training after this long; run again to go on")
    run.add_argument("--quiet", action="store_true", help="show no progress")
    run.set_defaults(do=_run)
    apart = commands.add_parser("baseline", help="test Gaussian processes fitted to each task apart")
    apart.add_argument("experiment")
    apart.add_argument("--method", required=True, help="gp-known, gp-fitted (tinygp) or svgp (GPJax)")
    apart.add_argument("--preset", choices=("full", "lite"), default="lite", help="whose test batches")
    apart.add_argument("--batches", type=int, default=4, help="how many test batches")
    apart.add_argument("--data", type=Path, help="folder of the real data, where an experiment reads some")
    apart.add_argument("--tune", action="store_true", help="print how settings of svgp score on 4 validation tasks")
    apart.set_defaults(do=_baseline)
    scaling = commands.add_parser("scaling", help="score and time a trained SIR model on larger lattices")
    scaling.add_argument("--model", required=True)
    scaling.add_argument("--preset", choices=("full", "lite"), default="full", help="of the trained model")
    scaling.add_argument("--seed", type=int, default=0)
    scaling.add_argument("--cells", type=int, nargs="+", default=(128, 256, 512, 1024), help="along each axis")
    scaling.add_argument("--samples", type=int, default=8, help="of each lattice")
    scaling.add_argument("--results", type=Path, help="folder of the results; paper/results when left out")
    scaling.add_argument("--runs", type=Path, help="folder of training states and models; runs when left out")
    scaling.set_defaults(do=_scaling)
    report = commands.add_parser("report", help="write tables, curves and the map of README.md")
    report.add_argument("--results", type=Path, help="folder of the results; paper/results when left out")
    report.add_argument("--out", type=Path, help="folder for REPORT.md and figures/; paper/ when left out")
    report.set_defaults(do=_report)
    figures = commands.add_parser("figures", help="draw the paper's figures from trained models and results")
    figures.add_argument("--only", nargs="+", help="gp, gp-multiscale, sphere, sir, era5, convergence, ratios")
    figures.add_argument("--data", type=Path, help="ERA5 data, where the model was trained on others than the sample")
    figures.add_argument("--results", type=Path, help="folder of the results; paper/results when left out")
    figures.add_argument("--runs", type=Path, help="folder of training states and models; runs when left out")
    figures.add_argument("--out", type=Path, help="folder of the pictures; paper/figures when left out")
    figures.set_defaults(do=_figures)
    publish = commands.add_parser("publish", help="put the weights of a recorded run into the package, with their card")
    publish.add_argument("experiment")
    publish.add_argument("--model", required=True)
    publish.add_argument("--preset", choices=("full", "lite", "hour"), default="full")
    publish.add_argument("--seed", type=int, default=0)
    publish.add_argument("--version", type=int, default=1)
    publish.add_argument("--results", type=Path, help="folder of the results; paper/results when left out")
    publish.add_argument("--runs", type=Path, help="folder of training states and models; runs when left out")
    publish.set_defaults(do=_publish)
    flops = commands.add_parser("flops", help="operations and memory of all models on the paper's 2-D GP batch")
    flops.add_argument("--model", action="append", help="only this one; may be given several times")
    flops.add_argument("--batch", type=int, default=8, help="tasks in the batch")
    flops.add_argument("--time", action="store_true", help="also time them")
    flops.set_defaults(do=_flops)
    commands.add_parser("list", help="experiments and models").set_defaults(do=_list)
    return parser


def _run(options: argparse.Namespace) -> int:
    from paper.runner import RESULTS, RUNS, Job, run

    folders = {"data": options.data, "results": options.results or RESULTS, "runs": options.runs or RUNS}
    job = Job(options.experiment, options.model, options.preset, options.seed, **folders)
    try:
        result = run(job, minutes=options.minutes, progress=not options.quiet)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    if result is None:
        return 3
    for domain, found in result["tests"].items():
        print(f"{options.experiment} {job.name} {domain}: NLL {found['nll']:.4f}")
    return 0


def _baseline(options: argparse.Namespace) -> int:
    from paper.tasks_apart import run, tune

    try:
        if options.tune:
            for settings, found in tune(options.experiment, options.method, options.preset, data=options.data):
                print(f"{settings}: NLL {found['nll']:.3f}, RMSE {found['rmse']:.3f}", flush=True)
            return 0
        result = run(
            options.experiment,
            options.method,
            options.preset,
            batches=options.batches,
            data=options.data,
            progress=lambda done, count: print(f"{done} of {count} batches", file=sys.stderr),
        )
    except (ValueError, ImportError) as error:
        print(error, file=sys.stderr)
        return 2
    for domain, found in result["tests"].items():
        print(f"{options.experiment} {options.method} {domain}: NLL {found['nll']:.4f}")
    return 0


def _scaling(options: argparse.Namespace) -> int:
    from paper import scaling
    from paper.runner import RESULTS, RUNS, Job

    folders = {"results": options.results or RESULTS, "runs": options.runs or RUNS}
    job = Job("sir", options.model, options.preset, options.seed, **folders)
    try:
        scaling.run(job, cells=options.cells, samples=options.samples, progress=print)
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def _report(options: argparse.Namespace) -> int:
    from paper import benchmarks, contents
    from paper.benchmarks import scale
    from paper.drawing import curves
    from paper.report import complexity, load, render
    from paper.runner import RESULTS

    out = options.out or RESULTS.parent
    folder = options.results or RESULTS
    results, benches = load(folder), benchmarks.load()
    out.mkdir(parents=True, exist_ok=True)
    text = render(results) + complexity(folder)
    made = [*curves.convergence(results, out / "figures"), *curves.ratios(benches, out / "figures")]
    (out / "REPORT.md").write_text("\n".join([text.rstrip("\n"), *benchmarks.tables(benches), *scale.table()]) + "\n")
    made.append(out / "REPORT.md")
    if (readme := out / "README.md").exists():
        readme.write_text(contents.rewrite(readme.read_text(), results, out))
        made.append(readme)
    print("\n".join(map(str, made)))
    return 0


def _figures(options: argparse.Namespace) -> int:
    from paper.drawing.everything import draw
    from paper.report import load
    from paper.runner import RESULTS, RUNS

    results, out = options.results or RESULTS, options.out or RESULTS.parent / "figures"
    try:
        found = draw(options.runs or RUNS, load(results), out, data=options.data, only=options.only)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2
    for name, made in found.items():
        print(f"{name}: {made}" if isinstance(made, str) else "\n".join(str(path) for path in made))
    return 0


def _publish(options: argparse.Namespace) -> int:
    from paper.publish import publish
    from paper.runner import RESULTS, RUNS, Job

    folders = {"results": options.results or RESULTS, "runs": options.runs or RUNS}
    try:
        card = publish(Job(options.experiment, options.model, options.preset, options.seed, **folders), options.version)
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    print(card)
    return 0


def _flops(options: argparse.Namespace) -> int:
    import json

    from paper.flops import measure, table
    from paper.runner import RESULTS

    found = measure(options.model, batch=options.batch, calls=3 if options.time else 0)
    print("\n".join(table(found)))
    if not options.model:
        (RESULTS / "flops.json").write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _list(options: argparse.Namespace) -> int:
    from paper.experiments import MODULES, experiment

    del options
    for name in MODULES:
        print(f"{name}: {', '.join(experiment(name).models)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
