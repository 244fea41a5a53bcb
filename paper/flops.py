"""Floating-point operations and memory of training and inference on one batch, from the compiled program and counted.

XLA's own count takes the body of a loop once, however often it runs, and every model here scans its blocks and its
attention. The operations are therefore also counted in the program that JAX hands to XLA, loops in full: two for each
multiply–add of a matrix product or a convolution, one for each element of everything else that computes. Keys that are
padding count like others: how many tiles of them attention leaves out is known only when it runs.
"""

import dataclasses
import math
import statistics
import time
from typing import Any
from unittest import mock

import equinox as eqx
import jax

from bsatnp._types import whole
from bsatnp.attention import tiles
from bsatnp.models.base import count_parameters, trainable
from bsatnp.simulate import GPTasks
from bsatnp.train import learned_nll, prepare
from paper import published, record
from paper.experiments.gp import EXPERIMENT
from paper.markdown import markdown

#: Primitives that move data and compute nothing.
MOVES = {
    *("broadcast_in_dim", "reshape", "transpose", "squeeze", "expand_dims", "concatenate", "slice", "dynamic_slice"),
    *("dynamic_update_slice", "gather", "pad", "rev", "iota", "copy", "convert_element_type", "stop_gradient"),
    *("device_put", "split", "bitcast_convert_type", "copy_p", "pvary", "optimization_barrier"),
}


@dataclasses.dataclass(frozen=True)
class Cost:
    """Of one compiled function: operations counted with loops and by XLA, bytes of temporary memory, seconds a call."""

    counted: float
    xla: float
    temporary: int
    seconds: float | None = None


def count(jaxpr: Any) -> float:
    """Floating-point operations of a program, with every loop in full.

    Raises:
        ValueError: a loop whose length is known only when it runs.
    """
    return float(sum(_count_equation(equation) for equation in jaxpr.eqns))


def _count_equation(equation: Any) -> float:
    name, parameters = equation.primitive.name, equation.params
    if name == "while":
        raise ValueError("`jaxpr` must have loops of known length, got a `while`.")
    size = max((math.prod(getattr(out.aval, "shape", ())) for out in equation.outvars), default=0)
    if name == "dot_general":
        (left, _), _ = parameters["dimension_numbers"]
        return 2.0 * size * math.prod(equation.invars[0].aval.shape[axis] for axis in left)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        out_axis = parameters["dimension_numbers"].rhs_spec[0]
        return 2.0 * size * math.prod(kernel) / kernel[out_axis]
    times = parameters["length"] if name == "scan" else 1
    inner = [_count_inner(value) for value in parameters.values()]
    inner = [number for number in inner if number is not None]
    if inner:
        return times * (max(inner) if name == "cond" else sum(inner))
    if name in MOVES:
        return 0.0
    if name.startswith(("reduce", "arg", "cum", "sort")):
        size = max(math.prod(getattr(x.aval, "shape", ())) for x in equation.invars)
    return float(size)


def _count_inner(value: Any) -> float | None:
    """Operations of a program inside a parameter of an equation, None where there is none."""
    if hasattr(value, "eqns"):
        return count(value)
    if hasattr(value, "jaxpr"):
        return count(value.jaxpr)
    if isinstance(value, tuple) and value and all(hasattr(part, "jaxpr") or hasattr(part, "eqns") for part in value):
        return max(_count_inner(part) or 0.0 for part in value)
    return None


def cost(function: Any, *args: Any, calls: int = 0) -> Cost:
    """What a function of pytrees of arrays costs on this device; with `calls` also their median time."""
    compiled = jax.jit(function).lower(*args).compile()
    analysis = compiled.cost_analysis()
    memory: Any = compiled.memory_analysis()
    seconds = []
    for _ in range(calls and calls + 1):
        start = time.perf_counter()
        jax.block_until_ready(compiled(*args))
        seconds.append(time.perf_counter() - start)
    jax.clear_caches()  # of what was traced with tiles left out
    with mock.patch.object(tiles, "used", lambda mask: None):
        program = jax.make_jaxpr(function)(*args)
    jax.clear_caches()
    return Cost(
        count(program.jaxpr),
        float((analysis or {}).get("flops", float("nan"))),
        int(memory.temp_size_in_bytes),
        statistics.median(seconds[1:]) if calls else None,
    )


def of_model(model: Any, task: Any, *, calls: int = 0) -> tuple[Cost, Cost]:
    """Training (loss and gradient) and inference on one batch."""
    arrays, rest = eqx.partition(model, eqx.is_array)

    def infer(arrays, task):
        found = jax.vmap(eqx.combine(arrays, rest))(task.ctx, task.tgt)
        return found.mean, found.std

    return cost(gradient(rest), arrays, task, calls=calls), cost(infer, arrays, task, calls=calls)


def gradient(rest: Any) -> Any:
    """The gradient of the loss as a function of the arrays of a model and a batch; `rest` is the model without them."""

    def loss(parameters, arrays, task):
        return learned_nll(eqx.combine(parameters, eqx.combine(arrays, rest)), task)[0]

    return lambda arrays, task: eqx.filter_grad(loss)(trainable(eqx.combine(arrays, rest)), arrays, task)


def measure(names: list[str] | None = None, *, batch: int = 8, calls: int = 0) -> dict[str, Any]:
    """All models on a batch of the paper's 2-D GP: contexts of 128 to 511 points padded to 512, 1,024 targets.

    Args:
        names: models of the experiment "gp".
        batch: tasks in the batch; the paper's 8.
        calls: how often each function is called to time it; 0 for not.

    Raises:
        ValueError: no such model, or no task.
    """
    whole("batch", batch)
    names = names or ["convcnp", "tnp-d", "pt-te-tnp-32", "pt-te-tnp-128", "te-tnp", "bsa-tnp"]
    models = {name: EXPERIMENT.make(name, key=jax.random.key(0)) for name in names}
    task = GPTasks(batch=batch)(0, key=jax.random.key(0))
    rows = []
    for name, model in models.items():
        train, infer = of_model(model, prepare(model, task), calls=calls)
        costs = {"train": dataclasses.asdict(train), "infer": dataclasses.asdict(infer)}
        rows.append({"model": name, "parameters": count_parameters(model), **costs})
    return {"batch": batch, "rows": rows, **record.made()}


def table(found: dict[str, Any]) -> list[str]:
    """What `measure` found beside the paper's counts, as Markdown."""
    head = ["model", "parameters", "train GFLOP", "infer GFLOP", "paper train GFLOP", "paper infer GFLOP"]
    head += ["train GFLOP, XLA", "infer GFLOP, XLA", "train MiB", "infer MiB", "train s", "infer s"]
    head += ["paper, whole training", "paper infer s"]
    body = []
    for row in found["rows"]:
        both = row["train"], row["infer"]
        paper = published.COMPLEXITY.get(row["model"])
        cells = [row["model"], f"{row['parameters']:,}", *(f"{c['counted'] / 1e9:.0f}" for c in both)]
        cells += ["", ""] if paper is None else [str(paper[0]), str(paper[1])]
        cells += ["" if c["xla"] is None else f"{c['xla'] / 1e9:.0f}" for c in both]
        cells += [f"{c['temporary'] / 2**20:,.0f}" for c in both]
        cells += ["" if c["seconds"] is None else f"{c['seconds']:.2f}" for c in both]
        cells += ["", ""] if paper is None else [f"{paper[2]:.0f} min", f"{1 / paper[3]:.3f}"]
        body.append(cells)
    return markdown(head, body)
