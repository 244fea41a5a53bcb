"""Run by `test_devices.py` in a process of its own with eight simulated devices; prints what it finds as JSON."""

import json
import sys
from unittest import mock

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from bsatnp import Points, Task, devices, evaluate, fit
from bsatnp.attention import tiles
from bsatnp.predict import predict
from bsatnp.train import loop, optimizer
from bsatnp.train.evaluation import learned_nll, shared
from tests import registry

DEVICES = np.array(jax.devices())
RNG = np.random.default_rng(0)


def mesh(**axes):
    count = int(np.prod(list(axes.values())))
    return jax.sharding.Mesh(DEVICES[:count].reshape(*axes.values()), tuple(axes))


def points(*lead, values=True):
    place, time = RNG.normal(size=(*lead, 2)), RNG.normal(size=(*lead, 1))
    return Points({"s": place, "t": time}, f=np.sin(place[..., :1] + time) if values else None)


def stream(step, *, key):
    del key
    rng = np.random.default_rng(step)
    place, time = rng.normal(size=(8, 40, 2)), rng.normal(size=(8, 40, 1))
    f = np.sin(place[..., :1] + time)
    observed = rng.random((8, 40)) < 0.8  # no two tasks count as much
    whole = Points({"s": place, "t": time}, f=f, mask=observed)
    part = lambda rows: jax.tree.map(lambda x: x[:, rows], whole)  # noqa: E731
    return Task(part(slice(16)), part(slice(16, None)))


def apart(a, b):
    """The largest difference of two trees, relative where numbers are large."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    both = [(np.asarray(x, np.float64), np.asarray(y, np.float64)) for x, y in pairs if eqx.is_array_like(x)]
    return max(float((np.abs(x - y) / (1 + np.abs(y))).max(initial=0)) for x, y in both)


def refused(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return "nothing was refused"


def trained(model, among):
    # without AdamW's division by the root of tiny squares, which makes much of the last bit
    run = {"steps": 3, "key": jax.random.key(0), "progress": False, "optimizer": registry.plain_descent()}
    one, many = fit(model, stream, **run), fit(model, stream, mesh=among, **run)
    scores = {"batches": 2, "key": jax.random.key(1)}
    before, after = evaluate(model, stream, **scores), evaluate(model, stream, mesh=among, **scores)
    return [apart(one.model, many.model), apart(one.model, model), apart(before, after)]


def predicted(model, *meshes):
    ctx, tgt = points(50), {k: v for k, v in points(300, values=False).index.items()}
    one = predict(model, ctx, tgt, chunk=128)
    return [apart(one, predict(model, ctx, tgt, chunk=128, mesh=among)) for among in meshes]


def update(model, count):
    """One update of a batch that so many devices share, compiled."""
    among = mesh(batch=count)
    state = optimizer(10).init(eqx.filter(model, eqx.is_inexact_array))
    fixed = (shared(stream(0, key=None), among), optimizer(10), learned_nll, among)
    with devices.sharing(devices.checked(among, ("batch",))):
        return loop._update.lower(fixed, model, state).compile().compiled


def exchanged(model):
    """How often the compiled update of a batch that eight devices share has one get what is another's."""
    text = update(model, 8).as_text()
    return {name: text.count(f" {name}(") for name in ("all-gather", "all-to-all", "collective-permute", "all-reduce")}


def memory(model):
    """Bytes of the arrays that one device keeps or needs, by the number of devices."""
    ctx = jax.tree.map(jnp.asarray, points(2048))
    kept, needed = {}, {}
    for count in (1, 2, 4, 8):
        among = mesh(ctx=count)
        conditioned = eqx.filter_jit(model.condition_over)(ctx, among, "ctx")
        kept[count] = sum(leaf.addressable_shards[0].data.nbytes for leaf in jax.tree.leaves(conditioned.memory))
        needed[count] = update(model, count).memory_analysis().temp_size_in_bytes
    return [list(kept.values()), list(needed.values())]


def found():
    every = {
        "BSATNP": registry.biased(),
        "TNPD": registry.tnpd(),
        "TETNP": registry.tetnp(),
        "PTTETNP": registry.pttetnp(),
        "ConvCNP": registry.convcnp(),
    }
    tgt, ctx, both = mesh(tgt=8), mesh(ctx=8), mesh(tgt=2, ctx=4)
    spread = ("BSATNP", "TNPD", "TETNP")
    yield "trained", {name: trained(every[name], mesh(batch=8)) for name in ("BSATNP", "ConvCNP")}
    jax.clear_caches()  # of what was traced under another budget
    with mock.patch.dict(tiles.BUDGET, cpu=1):  # task after task
        yield "trained apart", trained(every["BSATNP"], mesh(batch=8))
        yield "exchanged", exchanged(every["BSATNP"])
    jax.clear_caches()
    yield "targets", {name: predicted(model, tgt) for name, model in every.items()}
    yield "keys", {name: predicted(every[name], ctx, both) for name in spread}
    yield "memory", memory(every["BSATNP"])
    model, few = every["BSATNP"], points(5)
    yield (
        "refused",
        {
            "axis": refused(lambda: predict(model, few, few, mesh=mesh(batch=8))),
            "kind": refused(lambda: predict(model, few, few, mesh=DEVICES)),  # pyright: ignore
            "tasks": refused(lambda: fit(model, stream, steps=1, key=jax.random.key(0), mesh=mesh(batch=3))),
            "fixed": refused(lambda: predict(every["ConvCNP"], few, few, mesh=ctx)),
            "uneven": refused(lambda: model.condition_over(few, ctx, "ctx")),
        },
    )


if __name__ == "__main__":
    assert len(DEVICES) == 8
    json.dump(dict(found()), sys.stdout)
