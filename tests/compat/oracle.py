"""The authors' transformer models in float64 NumPy, one task at a time, and random parameters of any size for them.

Written from the description that comes with the reference vectors; shares nothing with the package.
"""

import math

import numpy as np


def relu(x):
    return np.maximum(x, 0)


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def dense(p, x):
    return x @ np.asarray(p["kernel"], np.float64) + np.asarray(p["bias"], np.float64)


def mlp(p, x, activation):
    for i in range(len(p)):
        x = dense(p[f"Dense_{i}"], x if i == 0 else activation(x))
    return x


def norm(p, x):
    centred = x - x.mean(-1, keepdims=True)
    unit = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
    return unit * np.asarray(p["scale"], np.float64) + np.asarray(p["bias"], np.float64)


def attention(p, queries, keys, heads, mask, score=lambda dots: dots):
    def split(name, x):
        return dense(p[name]["Dense_0"], x).reshape(len(x), heads, -1).swapaxes(0, 1)

    q, k, v = split("proj_qs", queries), split("proj_ks", keys), split("proj_vs", keys)
    scores = score(q @ k.swapaxes(1, 2) / math.sqrt(q.shape[-1]))
    scores = np.where(mask, scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True)) @ v
    return dense(p["proj_out"]["Dense_0"], mixed.swapaxes(0, 1).reshape(len(queries), -1))


def pre_norm(p, tokens, context, activation, heads, mask, score=lambda dots: dots):
    """`norm` is the first norm, of both sides; `LayerNorm_0` the second."""
    tokens = tokens + attention(p["attn"], norm(p["norm"], tokens), norm(p["norm"], context), heads, mask, score)
    return tokens + mlp(p["ffn"], norm(p["LayerNorm_0"], tokens), activation)


def post_norm(p, tokens, context, activation, heads, mask):
    tokens = norm(p["norm"], tokens + attention(p["attn"], tokens, context, heads, mask))
    return norm(p["LayerNorm_0"], tokens + mlp(p["ffn"], tokens, activation))


def gaussian(raw):
    mean, raw_std = np.split(raw, 2, -1)
    return mean, np.logaddexp(0, raw_std)


def bsa_tnp(p, ctx, tgt, f, mask, *, heads, distances, embed, exponent=2):
    """`distances`: component to a function of two sets of points; `ctx`, `tgt`: component to points."""
    flags = np.asarray(p["embed_obs"]["embedding"], np.float64)

    def tokens(index, f, flag):
        parts = [np.tile(flags[flag], (len(f), 1)), *(index[name] for name in embed), f]
        return norm(p["LayerNorm_0"], mlp(p["embed_all"], np.concatenate(parts, -1), gelu))

    def biased(bias, q_index, k_index):
        total = 0.0
        for name, distance in distances.items():
            d = distance(q_index[name], k_index[name])[None, :, :, None] ** exponent
            a, b = (np.asarray(bias[f"{name}_bias_{letter}"], np.float64)[:, None, None] for letter in "ab")
            total = total + (a * np.exp(-b * d)).sum(-1)
        return lambda dots: dots + total

    c, t = tokens(ctx, f, 1), tokens(tgt, np.zeros((len(next(iter(tgt.values()))), f.shape[1])), 0)
    for i in range(sum(name.startswith("KRBlock") for name in p)):
        block = p[f"KRBlock_{i}"]
        bias = block["attn"].get("attn", {})
        t, c = (pre_norm(block, x, c, gelu, heads, mask, biased(bias, index, ctx)) for x, index in ((t, tgt), (c, ctx)))
    return gaussian(mlp(p["head"], norm(p["LayerNorm_1"], t), gelu))


def tnp_d(p, ctx, tgt, f, mask, *, heads):
    c, t = (np.concatenate(list(index.values()), -1) for index in (ctx, tgt))
    c = mlp(p["embed_s_f"], np.concatenate([c, f], -1), relu)
    t = mlp(p["embed_s_f"], np.concatenate([t, np.zeros((len(t), f.shape[1]))], -1), relu)
    pre = "norm" in p["enc"]
    for i in range(sum(name.startswith("TransformerEncoderBlock") for name in p["enc"])):
        block, run = p["enc"][f"TransformerEncoderBlock_{i}"], pre_norm if pre else post_norm
        t, c = run(block, t, c, relu, heads, mask), run(block, c, c, relu, heads, mask)
    return gaussian(mlp(p["head"], norm(p["enc"]["norm"], t) if pre else t, relu))


def te_tnp(p, ctx, tgt, f, mask, *, heads):
    """Through pseudo-tokens where there are any."""
    s_ctx, s_tgt = (np.concatenate(list(index.values()), -1) for index in (ctx, tgt))
    c = mlp(p["embed_f"], np.concatenate([f, np.ones((len(f), 1))], -1), relu)
    t = mlp(p["embed_f"], np.zeros((len(s_tgt), f.shape[1] + 1)), relu)
    encoder = p["encoder"]

    def run(i, x, s_x, y, s_y, mask):
        block = encoder[f"TEBlock_{i}"]

        def score(dots):
            pairs = np.concatenate([np.moveaxis(dots, 0, -1), s_x[:, None] - s_y[None]], -1)
            return np.moveaxis(mlp(block["attn"]["kernel"], pairs, relu), -1, 0)

        return pre_norm(block, x, y, relu, heads, mask, score)

    count = sum(name.startswith("TEBlock") for name in encoder)
    if "pseudo_tokens" not in encoder:
        for i in range(count):
            t = run(i, t, s_tgt, c, s_ctx, mask)
    else:
        z = np.asarray(encoder["pseudo_tokens"][0], np.float64)
        s_z = np.asarray(encoder["pseudo_locs"][0], np.float64) + s_ctx[mask].mean(0)
        for i in range(0, count, 3):
            z = run(i, z, s_z, c, s_ctx, mask)
            c = run(i + 1, c, s_ctx, z, s_z, True)
            t = run(i + 2, t, s_tgt, z, s_z, True)
    return gaussian(mlp(p["decoder"], t, relu))


class Random:
    """Random parameters, all of which matter."""

    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def dense(self, n_in, n_out):
        kernel = self.rng.normal(size=(n_in, n_out)) / math.sqrt(n_in)
        return {"kernel": kernel, "bias": 0.3 * self.rng.normal(size=n_out)}

    def mlp(self, n_in, *sizes):
        widths = (n_in, *sizes)
        return {f"Dense_{i}": self.dense(*widths[i : i + 2]) for i in range(len(sizes))}

    def norm(self, dim):
        return {"scale": 1 + 0.3 * self.rng.normal(size=dim), "bias": 0.3 * self.rng.normal(size=dim)}

    def block(self, dim, width, hidden, **attention):
        projections = {f"proj_{name}": self.mlp(dim, width) for name in ("qs", "ks", "vs")}
        return {
            "attn": {**projections, "proj_out": self.mlp(width, dim), **attention},
            "norm": self.norm(dim),
            "LayerNorm_0": self.norm(dim),
            "ffn": self.mlp(dim, *hidden, dim),
        }

    def bias(self, heads, basis, name, rate=1.0):
        return {
            f"{name}_bias_a": self.rng.normal(size=(heads, basis)),
            f"{name}_bias_b": rate * np.exp(self.rng.normal(size=(heads, basis))),
        }


def narrow(p):
    """The parameters as they come in files."""
    return {name: narrow(part) if isinstance(part, dict) else np.asarray(part, np.float32) for name, part in p.items()}
