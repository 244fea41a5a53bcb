"""What the tests of cases share: points on "s" and "t", and functions that are compiled once for each model."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import metrics
from bsatnp.tasks import Points, Task
from tests.registry import arrays, predict

N_CTX, N_TGT = 5, 3
RNG = np.random.default_rng(12)
S, T, F = RNG.normal(size=(8, 2)), RNG.normal(size=(8, 1)), RNG.normal(size=(8, 1))
CTX, TGT = slice(0, N_CTX), slice(N_CTX, 8)


def points(rows: Any, *, s: Any = S, t: Any = T, f: Any = None, **options: Any) -> Points:
    """Rows of the eight points; `f` holds the values of all eight."""
    return Points({"s": s[rows], "t": t[rows]}, None if f is None else f[rows], **options)


def answer(model: Any, *, s: Any = S, t: Any = T, f: Any = F, mask: Any = None) -> Any:
    """The prediction at three targets from five context points."""
    return predict(model, points(CTX, s=s, t=t, f=f, mask=mask), points(TGT, s=s, t=t))


def finite(tree):
    """Whether every number of a tree is finite."""
    return all(np.isfinite(leaf).all() for leaf in arrays(tree))


def pair(*, s: Any = (S, S), t: Any = (T, T), f: Any = (F, F), mask: Any = None, tgt_f: Any = None) -> Task:
    """A batch of two tasks on the device."""
    kind = jnp.result_type(float)
    s, t, f = (np.stack([np.asarray(x, np.float64) for x in both]) for both in (s, t, f))
    mask = np.ones((2, N_CTX), bool) if mask is None else np.asarray(mask)
    goal = f[:, TGT] if tgt_f is None else np.stack(tgt_f)

    def device(rows, values, mask):
        index = {"s": jnp.asarray(s[:, rows], kind), "t": jnp.asarray(t[:, rows], kind)}
        return Points(index, jnp.asarray(values, kind), mask=jnp.asarray(mask))

    return Task(device(CTX, f[:, CTX], mask), device(TGT, goal, np.ones((2, N_TGT), bool)))


@eqx.filter_jit
def losses(model, task):
    """The NLL of each task of a pair, and its gradients in the model and in both index sets."""
    inexact, rest = eqx.partition(model, eqx.is_inexact_array)

    def loss(inexact, ctx, tgt, task):
        ctx, tgt = (eqx.tree_at(lambda p: p.index, part, index) for part, index in ((task.ctx, ctx), (task.tgt, tgt)))
        return metrics.nll(eqx.combine(inexact, rest)(ctx, tgt), task.tgt.f, task.tgt.observed)

    slope = jax.vmap(jax.value_and_grad(loss, (0, 1, 2)), (None, 0, 0, 0))
    return slope(inexact, task.ctx.index, task.tgt.index, task)


def of(tree, i):
    """The part of one task."""
    return jax.tree.map(lambda leaf: leaf[i], tree)


def near(a, b, *, times=1.0):
    """Whether two trees agree to a few roundings at the size of each array."""
    step = 1e-9 if jnp.zeros(()).dtype == jnp.float64 else 1e-4
    pairs = zip(arrays(a), arrays(b), strict=True)
    return all(np.allclose(x, y, rtol=0, atol=times * step * max(1.0, np.abs(y).max(initial=0))) for x, y in pairs)
