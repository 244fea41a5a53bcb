"""PyTorch's attention, one row at a time; runs in an environment of its own. FlexAttention has no gradient on a CPU."""

import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import numpy as np
import torch
from serving import serve
from torch.nn.attention.flex_attention import flex_attention
from torch.nn.functional import scaled_dot_product_attention


def prepare(row):
    """The call of a row."""
    rng = np.random.default_rng(0)
    draw = lambda *shape: torch.tensor(rng.standard_normal((row["batch"], *shape)), dtype=torch.float32)  # noqa: E731
    q, k = (draw(row["heads"], row[side], row["dim"]) for side in ("queries", "keys"))
    v = draw(row["heads"], row["keys"], row["dim"])
    p, x = draw(row["queries"], 2), draw(row["keys"], 2)
    weight = torch.full((row["heads"], row["bases"]), 0.2)
    rate = torch.logspace(1, -1, row["bases"]).expand(row["heads"], row["bases"]).contiguous()
    parts = [q, k, v, weight, rate]

    def flex(q, k, v, weight, rate):
        def biased(score, b, h, i, j):
            square = (p[b, i, 0] - x[b, j, 0]) ** 2 + (p[b, i, 1] - x[b, j, 1]) ** 2
            for m in range(row["bases"]):
                score = score + weight[h, m] * torch.exp(-rate[h, m] * square)
            return score

        return flex_attention(q, k, v, score_mod=biased)

    def matrix(q, k, v, weight, rate):
        square = ((p[:, :, None] - x[:, None]) ** 2).sum(-1)[:, None, :, :, None]
        bias = (weight[:, None, None] * torch.exp(-rate[:, None, None] * square)).sum(-1)
        return scaled_dot_product_attention(q, k, v, attn_mask=bias)

    flexible = row["peer"].startswith("flex")
    if row["kind"] == "gradient" and flexible:
        raise RuntimeError("FlexAttention has no gradient on a CPU.")
    attend = torch.compile(flex, dynamic=False) if flexible else matrix
    if row["kind"] == "forward":

        def call():
            with torch.no_grad():
                attend(*parts)

        return call, {}
    needed = [part.requires_grad_() for part in parts]
    return lambda: torch.autograd.grad(attend(*parts).sum(), needed), {}


if __name__ == "__main__":
    serve(prepare, {"torch": torch.__version__})
