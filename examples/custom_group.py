"""A symmetry of your own: define it, check it, train with it, and see what it is worth.

The field is a kaleidoscope: eight copies of one wedge, mirrored about both axes and both diagonals of a square. Its
group is not built in. Stated in thirty lines, it lets a model that has seen one wedge predict the other seven.

Run it with `python examples/custom_group.py`; it takes about two minutes on two cores and writes `custom_group.png`.
With SMOKE=1 it makes a few steps only.
"""

# %%
import dataclasses
import os

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

from bsatnp.bias import MLPBias, RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.models import BSATNP
from bsatnp.predict import predict
from bsatnp.simulate import AbstractKernel, GPTasks, posterior
from bsatnp.tasks import Points, Task
from bsatnp.testing import LawError, check_bias, check_group, check_model
from bsatnp.train import evaluate, fit, optimizer

smoke = bool(os.environ.get("SMOKE"))
steps = 20 if smoke else 1000

# %% [markdown]
# The group: an action, and what it leaves unchanged of a pair of points. No base class is needed.


# %%
def fold(points):
    """Bring points of the square into one wedge: 0 ≤ first ≤ second coordinate."""
    xp = np if isinstance(points, np.ndarray) else jnp
    return xp.sort(xp.abs(points), -1)


class Square:
    """The eight motions of a square, for fields that are themselves symmetric: f(g·s) = f(s).

    Either point of a pair may then be folded by itself, so the invariants are the difference of folded points.
    """

    dim = 2

    def sample(self, *, key):
        signs, swap = jax.random.split(key)
        matrix = jnp.where(jax.random.bernoulli(swap), jnp.eye(2)[::-1], jnp.eye(2))
        return matrix * jax.random.rademacher(signs, (2, 1), matrix.dtype)

    def identity(self):
        return jnp.eye(2)

    def compose(self, g, h):
        return g @ h

    def inverse(self, g):
        return g.T

    def act(self, g, points):
        return points @ g.T

    def invariants(self, p, q):
        return fold(p) - fold(q)


# %% [markdown]
# Is it a group, does it act, are the invariants invariant? And is a model built on it? The checks draw elements and
# points, and move every parameter at random first.

# %%
SIZES = {"depth": 2, "dim": 32, "heads": 4, "width": 32, "embed_sizes": (64,), "hidden": 64}


def model(group):
    """A small BSA-TNP whose only knowledge of space is the bias of a group."""
    space = RBFNetwork(On("s", group), heads=4, basis=4, lengths=(0.05, 1.0))
    return BSATNP(bias=space, **SIZES, key=jax.random.key(0))


square, plain = model(Square()), model(Translation(2))
check_group(Square())
check_bias(RBFNetwork(Square()))
check_model(square, On("s", Square()), examples=5)
print("Square: a group, an invariant bias, an invariant model")

# %% [markdown]
# A slip is caught, with the simplest case that shows it: here somebody forgot the diagonals.


# %%
class Forgetful(Square):
    """Folds about the axes only."""

    def invariants(self, p, q):
        return jnp.abs(p) - jnp.abs(q)


for wrong in (
    lambda: check_group(Forgetful()),
    lambda: check_bias(MLPBias(Translation(2), dim=2, key=jax.random.key(0)), Square()),
):
    try:
        wrong()
    except LawError as error:
        print(f"caught: {error}\n")

# %% [markdown]
# Tasks that have the symmetry: a Gaussian process of folded points. The same stream trains a model with the new group
# and one that knows translations only.


# %%
class Kaleidoscope(AbstractKernel):
    """The squared-exponential kernel of folded points."""

    lengthscale: jax.Array

    def __call__(self, p, q):
        u = (fold(p) - fold(q)) / self.lengthscale
        return (np if isinstance(u, np.ndarray) else jnp).exp(-(u * u).sum(-1) / 2)


options = {"n_ctx": (8, 32), "n_tgt": 48, "ctx_sizes": (32,), "noise": 0.05, "tgt_noise": 0.05}
tasks = GPTasks(kernel=Kaleidoscope, domain=(-1.0, 1.0), batch=8, **options)
train_key, test_key = jax.random.split(jax.random.key(1))
schedule = optimizer(steps, peak=3e-3)
trained = {
    name: fit(start, tasks, steps=steps, key=train_key, optimizer=schedule).model
    for name, start in {"the square": square, "translations": plain}.items()
}

# %% [markdown]
# Now all observations come from one wedge, and the targets from anywhere. Folding the context changes no value of it,
# since the field is symmetric.


# %%
def one_wedge(step, *, key):
    """The same tasks with their context folded into one wedge."""
    task = tasks(step, key=key)
    return Task(Points({"s": fold(task.ctx.index["s"])}, task.ctx.f, mask=task.ctx.mask), task.tgt)


batches = 1 if smoke else 16
nll = {name: evaluate(one, one_wedge, batches=batches, key=test_key)["nll"] for name, one in trained.items()}
exact = []
for step in range(batches):
    task, kernels = tasks.draw(step, key=jax.random.fold_in(test_key, step))
    best = posterior(kernels, task.ctx, task.tgt, noise=tasks.noise, tgt_noise=tasks.tgt_noise)
    exact.append(-best.log_prob(task.tgt.f).mean())
for name, value in {**nll, "exact posterior": np.mean(exact)}.items():
    print(f"test NLL with one wedge observed, {name}: {value:.3f}")

# %% Draw one field, what was observed of it, and what the two models make of that.
side = 24 if smoke else 64
grid = tasks.grid(side)
task, _ = dataclasses.replace(tasks, n_ctx=(32, 33)).draw(3, key=jax.random.key(5), targets=grid)
ctx, tgt = (jax.tree.map(lambda leaf: np.asarray(leaf[0]), part) for part in (task.ctx, task.tgt))
ctx = Points({"s": fold(ctx.index["s"])}, ctx.f)
panels = {"truth": tgt.f} | {f"bias of {name}": predict(one, ctx, tgt).mean for name, one in trained.items()}

pictures = []
figure, axes = plt.subplots(1, 3, figsize=(11, 3.9), sharex=True, sharey=True, layout="constrained")
limit = float(np.abs(tgt.f).max())
for axis, (title, values) in zip(axes, panels.items(), strict=True):
    values = np.asarray(values).reshape(side, side).T
    pictures.append(axis.imshow(values, origin="lower", extent=(-1, 1, -1, 1), cmap="RdBu_r", vmin=-limit, vmax=limit))
    for x, y in ((1, 0), (0, 1), (1, 1), (1, -1)):
        axis.plot([-x, x], [-y, y], ":", color="0.3", lw=0.8, label="mirrors" if y == 0 else None)
    seen = ctx.index["s"]
    axis.plot(seen[:, 0], seen[:, 1], "k.", ms=5, label=f"the {len(seen)} observations, all in one wedge")
    name = title.removeprefix("bias of ")
    axis.set(title=title + (f", test NLL {nll[name]:.2f}" if name in nll else ""), xlabel="x (half sides)")
axes[0].set_ylabel("y (half sides)")
figure.colorbar(pictures[-1], ax=axes, label="field, prior standard deviations", shrink=0.9)
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
figure.savefig("custom_group.png", dpi=150)
print("wrote custom_group.png")
