"""This package and `jax.nn.dot_product_attention`, one row at a time."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

import jax
import jax.numpy as jnp
import numpy as np

import bsatnp
from bsatnp import devices
from bsatnp.attention import scan_attention
from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.layers import AdditiveScore
from bsatnp.models import BSATNP
from bsatnp.models.base import trainable
from bsatnp.tasks import Points, Task
from bsatnp.train import learned_nll, optimizer
from bsatnp.train.loop import _update
from paper.benchmarks.serving import serve, temporary_mib


def prepare(row):
    """The call of a row, and the memory that it takes."""
    if row["kind"] in ("inference", "training step"):
        return model(row)
    q, k, v, places = attention_inputs(row)
    bias = RBFNetwork(On("s", Translation(2)), heads=row["heads"], basis=row["bases"])
    score = None if row["peer"] == "scan, no bias" else AdditiveScore(bias)
    attend = plain if row["peer"].startswith("jax") else scan

    def loss(parts):
        return jnp.sum(attend(*parts, *places))

    parts = (score, q, k, v)
    compilation = jax.jit if attend is plain else devices.jit
    function = compilation((lambda parts: attend(*parts, *places)) if row["kind"] == "forward" else jax.grad(loss))
    facts = {"temporary_mib": temporary_mib(function.lower(parts))}
    return (None if row["kind"] == "memory" else lambda: jax.block_until_ready(function(parts))), facts


def attention_inputs(row):
    """Random queries, keys, values and places."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.standard_normal((row["batch"], *shape)), jnp.float32)  # noqa: E731
    queries, keys = (draw(row["heads"], row[side], row["dim"]) for side in ("queries", "keys"))
    places = tuple({"s": draw(row[side], 2)} for side in ("queries", "keys"))
    return queries, keys, draw(row["heads"], row["keys"], row["dim"]), places


def scan(score, q, k, v, q_index, k_index):
    """A batch of attention by this package."""

    def one(q, k, v, q_index, k_index):
        index = {} if score is None else {"q_index": q_index, "k_index": k_index}
        return scan_attention(q, k, v, score=score, **index)

    return jax.vmap(one)(q, k, v, q_index, k_index)


def plain(score, q, k, v, q_index, k_index):
    """The library's own attention, with the bias as a matrix."""
    matrix = jax.vmap(lambda p, x: score.bias.tile(p, x))(q_index, k_index)
    first = [jnp.swapaxes(x, 1, 2) for x in (q, k, v)]
    return jnp.swapaxes(jax.nn.dot_product_attention(*first, bias=matrix), 1, 2)


def model(row):
    """A training step or a prediction of the paper's model."""
    rng = np.random.default_rng(0)
    bias = RBFNetwork(On("s", Translation(2)), heads=row["heads"], basis=row["bases"])
    net = BSATNP(bias=bias, key=jax.random.key(0))
    points = {}
    for side, n in (("ctx", row["keys"]), ("tgt", row["queries"])):
        place, f = rng.uniform(-2, 2, (row["batch"], n, 2)), rng.standard_normal((row["batch"], n, 1))
        mask = np.arange(n) < np.array(row["counts"])[:, None] if side == "ctx" else None
        drawn = Points({"s": place.astype(np.float32)}, f=f.astype(np.float32), mask=mask)
        points[side] = jax.tree.map(jnp.asarray, drawn)
    task = Task(**points)
    if row["kind"] == "inference":
        infer = devices.jit(lambda net, task: jax.vmap(net)(task.ctx, task.tgt).mean)
        facts = {"temporary_mib": temporary_mib(infer.lower(net, task))}
        return lambda: jax.block_until_ready(infer(net, task)), facts
    adam = optimizer(1000)
    state = [net, adam.init(trainable(net))]
    fixed = (task, adam, learned_nll, None)
    facts = {"temporary_mib": temporary_mib(_update.lower(fixed, *state))}

    def step():
        state[0], state[1], scores = _update(fixed, *state)
        jax.block_until_ready((state, scores))

    return step, facts


if __name__ == "__main__":
    serve(prepare, {"bsatnp": getattr(bsatnp, "__version__", "0"), "jax": jax.__version__})
