"""Train a BSA-TNP on one-dimensional Gaussian processes, and see how near the exact posterior it comes.

Run it with `python examples/quickstart.py`; it takes about three minutes on two cores and writes `quickstart.png`. With
SMOKE=1 it makes a few steps only.
"""

# %%
import dataclasses
import os

import jax
import matplotlib.pyplot as plt
import numpy as np

from bsatnp.bias import RBFNetwork
from bsatnp.groups import On, Translation
from bsatnp.models import BSATNP
from bsatnp.predict import predict
from bsatnp.simulate import GPTasks, posterior
from bsatnp.tasks import Points
from bsatnp.train import fit, optimizer

smoke = bool(os.environ.get("SMOKE"))
steps = 20 if smoke else 3500

# %% Tasks: draws of a process with a lengthscale of their own, seen at a few noisy points.
tasks = GPTasks(dim=1, batch=8, n_ctx=(4, 48), n_tgt=64, ctx_sizes=(48,))

# %% A model that sees places only through their differences, so that shifting everything changes nothing.
model = BSATNP(
    bias=RBFNetwork(On("s", Translation(1)), heads=4, basis=5, lengths=(0.05, 2.0)),
    depth=4,
    dim=32,
    width=64,
    embed_sizes=(64,),
    hidden=64,
    key=jax.random.key(0),
)

# %% Train.
schedule = optimizer(steps, peak=3e-3, warmup=steps // 10)
model = fit(model, tasks, steps=steps, key=jax.random.key(1), optimizer=schedule).model

# %% Test on new tasks: against the exact posterior, which knows the true kernel, and against a constant.
test_key = jax.random.key(2)
batches = [tasks.draw(step, key=test_key) for step in range(2 if smoke else 16)]


def model_nll(shift):
    """Mean NLL of the model with all inputs moved by `shift`, in the float64 of the host."""
    total = []
    for batch, _ in batches:
        for i in range(tasks.batch):
            ctx, tgt = (jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), part) for part in (batch.ctx, batch.tgt))
            ctx, tgt = (
                dataclasses.replace(part, index={"s": part.index["s"].astype(np.float64) + shift})
                for part in (ctx, tgt)
            )
            total.append(-np.mean(predict(model, ctx, tgt).log_prob(tgt.f)))
    return np.mean(total)


exact = np.mean(
    [-posterior(kernels, batch.ctx, batch.tgt, noise=tasks.noise).log_prob(batch.tgt.f) for batch, kernels in batches]
)
values = np.concatenate([np.asarray(batch.tgt.f).ravel() for batch, _ in batches])
constant = np.mean(0.5 * (values - values.mean()) ** 2 / values.var() + 0.5 * np.log(2 * np.pi * values.var()))
here, near, far = (model_nll(shift) for shift in (0, 10, 1e4))

print("\ntest NLL, lower is better")
rows = {
    "constant predictor": constant,
    "BSA-TNP": here,
    "  all inputs shifted by 10": near,
    "  all inputs shifted by 1e4": far,
    "exact posterior, true kernel": exact,
}
for name, value in rows.items():
    print(f"  {name:<30} {value:8.4f}")
print(f"BSA-TNP goes {(constant - here) / (constant - exact):.0%} of the way from the constant to the exact posterior.")

# %% Draw three tasks.
grid = np.linspace(-2, 2, 200)[:, None]
batch, kernels = tasks.draw(1, key=jax.random.key(3), targets=grid)
figure, axes = plt.subplots(1, 3, figsize=(12, 3.2), sharey=True, layout="constrained")
for i, axis in enumerate(axes):
    ctx, tgt = (jax.tree.map(lambda leaf, i=i: np.asarray(leaf[i]), part) for part in (batch.ctx, batch.tgt))
    kernel = jax.tree.map(lambda leaf, i=i: leaf[i], kernels)
    ours, best = predict(model, ctx, Points({"s": grid})), posterior(kernel, ctx, tgt, noise=tasks.noise)
    mean, std = ours.mean[:, 0], ours.std[:, 0]
    axis.fill_between(grid[:, 0], mean - 1.96 * std, mean + 1.96 * std, color="#0072B2", alpha=0.2, lw=0)
    axis.plot(grid[:, 0], mean, color="#0072B2", label="BSA-TNP, mean and 95 % band")
    for sign in (-1.96, 1.96):
        edge = best.mean + sign * np.sqrt(best.variance)
        axis.plot(grid[:, 0], edge, "--", color="#D55E00", lw=1, label="exact 95 % band" if sign > 0 else None)
    axis.plot(grid[:, 0], tgt.f[:, 0], color="0.4", lw=1, label="truth")
    axis.plot(ctx.index["s"][ctx.usable, 0], ctx.f[ctx.usable, 0], "k.", label="context, noise 0.1")
    axis.set(xlabel="s", title=f"{ctx.usable.sum()} context points, lengthscale {float(kernel.lengthscale):.2f}")
axes[0].set_ylabel("f")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False)
figure.savefig("quickstart.png", dpi=150)
print("wrote quickstart.png")
