"""The authors' package, one row at a time; runs in an environment of its own."""

import importlib.metadata
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import jax
import jax.numpy as jnp
import numpy as np
import optax
from dl4bi.core.attention import BiasedScanAttention, MultiHeadAttention
from dl4bi.core.bias import Bias
from dl4bi.core.mlp import MLP
from dl4bi.core.transformer import KRBlock
from dl4bi.meta_learning.bsa_tnp import BSATNP
from serving import serve, temporary_mib


def prepare(row):
    """The call of a row, and the memory that it takes."""
    if row["kind"] in ("inference", "training step"):
        return model(row)
    rng = np.random.default_rng(0)
    draw = lambda *shape: jnp.asarray(rng.standard_normal((row["batch"], *shape)), jnp.float32)  # noqa: E731
    q, k = (draw(row["heads"], row[side], row["dim"]) for side in ("queries", "keys"))
    v = draw(row["heads"], row["keys"], row["dim"])
    places = {"qs_s": draw(row["queries"], 2), "ks_s": draw(row["keys"], 2)}
    tiles = {"qs_chunk_size": 256, "ks_chunk_size": 256} if "256" in row["peer"] else {}
    layer = BiasedScanAttention({"s": Bias.build_rbf_network_bias(row["heads"], row["bases"])}, **tiles)
    weights = layer.init(jax.random.key(0), q, k, v, **places)

    def attend(weights, q, k, v):
        return layer.apply(weights, q, k, v, **places)[0]

    parts = (weights, q, k, v)
    if row["kind"] == "forward":
        function = jax.jit(attend)
    else:
        function = jax.jit(jax.grad(lambda *parts: attend(*parts).sum(), argnums=(0, 1, 2, 3)))
    facts = {"temporary_mib": temporary_mib(function.lower(*parts))}
    return (None if row["kind"] == "memory" else lambda: jax.block_until_ready(function(*parts))), facts


def model(row):
    """A training step or a prediction of the authors' model."""
    rng = np.random.default_rng(0)
    width = row["heads"] * row["dim"]
    attention = MultiHeadAttention(
        attn=BiasedScanAttention({"s": Bias.build_rbf_network_bias(row["heads"], row["bases"])}),
        num_heads=row["heads"],
        proj_qs=MLP([width]),
        proj_ks=MLP([width]),
        proj_vs=MLP([width]),
    )
    net = BSATNP(embed_s=lambda s: None, blk=KRBlock(attention))
    given = {}
    for side, n in (("ctx", row["keys"]), ("test", row["queries"])):
        given[f"s_{side}"] = jnp.asarray(rng.uniform(-2, 2, (row["batch"], n, 2)), jnp.float32)
    given["f_ctx"] = jnp.asarray(rng.standard_normal((row["batch"], row["keys"], 1)), jnp.float32)
    given["mask_ctx"] = jnp.asarray(np.arange(row["keys"]) < np.array(row["counts"])[:, None])
    truth = jnp.asarray(rng.standard_normal((row["batch"], row["queries"], 1)), jnp.float32)
    weights = net.init(jax.random.key(0), **given)
    count = sum(leaf.size for leaf in jax.tree.leaves(weights))

    def predict(weights):
        out = net.apply(weights, **given)
        return out.mu, out.std

    if row["kind"] == "inference":
        function = jax.jit(predict)
        temporary = temporary_mib(function.lower(weights))
        return lambda: jax.block_until_ready(function(weights)), {"temporary_mib": temporary, "parameters": count}

    def loss(weights):
        mu, std = predict(weights)
        return (0.5 * ((truth - mu) / std) ** 2 + jnp.log(std)).mean()

    adam = optax.chain(optax.clip_by_global_norm(3.0), optax.yogi(1e-3))
    state = [weights, adam.init(weights)]

    @jax.jit
    def update(weights, state):
        value, gradient = jax.value_and_grad(loss)(weights)
        change, state = adam.update(gradient, state, weights)
        return optax.apply_updates(weights, change), state, value

    temporary = temporary_mib(update.lower(*state))

    def step():
        state[0], state[1], value = update(*state)
        jax.block_until_ready((state, value))

    return step, {"temporary_mib": temporary, "parameters": count}


if __name__ == "__main__":
    serve(prepare, {"dl4bi": importlib.metadata.version("dl4bi"), "jax": jax.__version__})
