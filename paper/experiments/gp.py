"""Gaussian processes in the plane: on the training domain, shifted, doubled; and on two resolutions at once."""

import dataclasses
import itertools
from functools import partial
from pathlib import Path

import jax
import numpy as np

from bsatnp.bias import Linear, Window
from bsatnp.simulate import GPTasks, posterior
from bsatnp.tasks import Task, batch
from paper.models import EQUAL, bases, bsa_tnp, conv_cnp, on_domain, others
from paper.protocol import Experiment, Preset, full_budget, lite_budget

WIDTHS = {"s": 2}

#: The paper's density on a quarter of its area.
LITE = GPTasks(domain=(-1.0, 1.0), n_ctx=(32, 128), n_tgt=256, ctx_sizes=(128,))


@dataclasses.dataclass(frozen=True)
class Windows(GPTasks):
    """Tasks cut into squares, each a task of its own: its targets see the context in and around the square alone.

    Every target is in one of them, so that scores are over the same targets as those of the tasks that were cut.

    Args:
        side: of the squares.
        reach: how far beyond their edges the context goes.
    """

    side: float = 1.0
    reach: float = 0.5

    def __call__(self, step: int, *, key) -> Task:
        """A batch of squares, those of the first task first."""
        whole = jax.device_get(super().__call__(step, key=key))
        low, high = (edge + self.shift for edge in self.domain)
        starts = np.arange(low, high - 1e-6, self.side)
        parts = []
        for i in range(len(whole.tgt.mask)):
            task = jax.tree.map(lambda leaf, i=i: leaf[i], whole)
            known = task.ctx.take(np.flatnonzero(task.ctx.mask))
            square = np.clip((task.tgt.index["s"] - low) // self.side, 0, len(starts) - 1) * self.side + low
            for corner in itertools.product(starts, repeat=self.dim):
                mine = np.flatnonzero(np.isclose(square, corner).all(-1))
                first, last = np.subtract(corner, self.reach), np.add(corner, self.side + self.reach)
                seen = ((known.index["s"] >= first) & (known.index["s"] <= last)).all(-1)
                if len(mine):
                    parts.append(Task(known.take(np.flatnonzero(seen)), task.tgt.take(mine)))
        sizes = tuple(range(64, 64 * 64, 64))
        return jax.tree.map(jax.numpy.asarray, batch(parts, ctx_sizes=sizes, tgt_sizes=sizes))


def domains(tasks: GPTasks) -> dict[str, GPTasks]:
    """The training domain, the same 10 units away, and one twice as wide."""
    return {"original": tasks, "shifted": tasks.shifted(10.0), "scaled": tasks.scaled(2.0)}


def full(data: Path | None = None) -> Preset:
    """The paper's budget."""
    del data
    return full_budget(GPTasks(), domains(GPTasks()))


def lite(data: Path | None = None) -> Preset:
    """3,000 steps of 8 tasks on a quarter of the area; the doubled domain is the paper's own."""
    del data
    return lite_budget(LITE, domains(LITE), {"scaled": "original"}, exact_batches=50)


def lite_paper_rate(data: Path | None = None) -> Preset:
    """The lite budget under the paper's learning rate, which has no warm-up and a tenth of the peak."""
    return dataclasses.replace(lite(data), peak=1e-4, end=2e-5, warmup=0)


def lite_no_warmup(data: Path | None = None) -> Preset:
    """The lite budget, whose learning rate starts at its peak."""
    return dataclasses.replace(lite(data), warmup=0)


def hour(data: Path | None = None) -> Preset:
    """About an hour of one or two cores: the lite domain, 15,000 steps of 16 tasks with 64 targets, a larger peak.

    The doubled domain is tested in windows as well, as large as the domain of the training.
    """
    brief = dataclasses.replace(LITE, batch=16, n_tgt=64)
    longer = {"steps": 15_000, "validate_every": 1_500, "peak": 3e-3, "warmup": 750}
    budget = lite(data)
    windows = Windows(**dataclasses.asdict(LITE.scaled(2.0)))
    tests = {**budget.tests, "scaled, in windows": windows}
    published = {**budget.published, "scaled, in windows": "original"}
    return dataclasses.replace(budget, train=brief, tests=tests, published=published, **longer)


def multiscale_full(data: Path | None = None) -> Preset:
    """The budget of the authors' script, which the paper does not give: batches of 32 tasks with 128 targets."""
    del data
    tasks = GPTasks.multiscale(n_tgt=128, batch=32)
    return full_budget(tasks, {"multiscale": tasks})


def multiscale_lite(data: Path | None = None) -> Preset:
    """3,000 steps of 8 tasks on the full domain."""
    del data
    tasks = GPTasks.multiscale(n_tgt=128)
    return lite_budget(tasks, {"multiscale": tasks}, {"multiscale": "multiscale"}, exact_batches=50)


def exact(stream, number, key):
    """The exact posterior, given the kernel of each task."""
    task, kernels = stream.draw(number, key=key)
    bound = posterior(kernels, task.ctx, task.tgt, noise=stream.noise, tgt_noise=stream.tgt_noise)
    return -bound.log_prob(task.tgt.f)


def adapt(model, stream):
    """Cover the stream's domain."""
    return on_domain(model, stream.domain[0] + stream.shift, stream.domain[1] + stream.shift)


def models(half_width: float):
    """The models of the paper's table; ours also with other scores beside the bases, and with equal starts of these."""
    ours = {
        "bsa-tnp": partial(bsa_tnp, WIDTHS),
        "bsa-tnp-linear": partial(bsa_tnp, WIDTHS, also=partial(Linear, heads=4, length=0.1)),
        "bsa-tnp-window": partial(bsa_tnp, WIDTHS, also=partial(Window, width=0.75)),
        "bsa-tnp-equal-start": partial(bsa_tnp, WIDTHS, lengths={"s": EQUAL}),
    }
    return ours | {"convcnp": partial(conv_cnp, half_width)} | others(WIDTHS) | bases(WIDTHS)


EXPERIMENT = Experiment(
    name="gp",
    title="2-D GP",
    models=models(2.0),
    presets={
        "full": full,
        "lite": lite,
        "lite-paper-rate": lite_paper_rate,
        "lite-no-warmup": lite_no_warmup,
        "hour": hour,
    },
    exact=exact,
    adapt=adapt,
)

MULTISCALE = Experiment(
    name="gp-multiscale",
    title="Multiscale GP",
    models=models(1.5),
    presets={"full": multiscale_full, "lite": multiscale_lite},
    exact=exact,
    adapt=adapt,
)
