"""Operations against counts by hand."""

import json

import jax
import jax.numpy as jnp
import pytest

from bsatnp.attention import scan_attention
from paper import flops
from paper.__main__ import main
from paper.flops import cost, count


def counted(function, *shapes):
    return count(jax.make_jaxpr(function)(*(jnp.zeros(shape) for shape in shapes)).jaxpr)


def looped(a, b):
    return jax.lax.scan(lambda x, _: (jnp.matmul(a, x), None), b, None, length=10)[0]


@pytest.mark.parametrize(
    ("function", "shapes", "expected"),
    [
        (jnp.matmul, [(3, 4), (4, 5)], 2 * 3 * 4 * 5),
        (jax.vmap(jnp.matmul), [(7, 3, 4), (7, 4, 5)], 7 * 2 * 3 * 4 * 5),
        (lambda x: jnp.exp(x).reshape(6, 2).sum(0), [(3, 4)], 12 + 12),
        (looped, [(4, 4), (4, 5)], 10 * 2 * 4 * 4 * 5),
        (jax.jit(looped), [(4, 4), (4, 5)], 10 * 2 * 4 * 4 * 5),
        (lambda x, k: jax.lax.conv(x, k, (1, 1), "SAME"), [(2, 3, 8, 8), (5, 3, 3, 3)], 2 * (2 * 5 * 64) * 3 * 9),
        (jax.grad(lambda a, b: jnp.matmul(a, b).sum(), (0, 1)), [(3, 4), (4, 5)], 3 * 2 * 60 + 15),
    ],
)
def test_operations_are_those_counted_by_hand(function, shapes, expected):
    assert counted(function, *shapes) == expected


def test_cost_is_of_the_compiled_function():
    found = cost(jnp.matmul, jnp.ones((64, 32)), jnp.ones((32, 16)), calls=2)
    assert found.counted == 2 * 64 * 32 * 16 and found.xla >= found.counted * 0.9
    assert found.seconds is not None and found.seconds > 0 and found.temporary >= 0


def test_what_was_found_is_kept_where_it_can_be(tmp_path, monkeypatch, capsys):
    calls = []
    monkeypatch.setattr(flops, "measure", lambda *args, **options: calls.append(options) or {"rows": []})
    (tmp_path / "file").touch()
    assert main(["flops", "--time", "--results", str(tmp_path / "file" / "results")]) == 2
    assert "Not a directory" in capsys.readouterr().err and not calls
    assert main(["flops", "--time", "--results", str(tmp_path / "results")]) == 0
    assert json.loads((tmp_path / "results" / "flops.json").read_text()) == {"rows": []}


def test_what_xla_does_not_count_is_left_out():
    none = {"counted": 2e9, "xla": None, "temporary": 2**20, "seconds": None}
    *_, row = flops.table({"rows": [{"model": "nobody", "parameters": 7, "train": none, "infer": none}]})
    assert row == "| nobody | 7 | 2 | 2 |  |  |  |  | 1 | 1 |  |  |  |  |"


def test_a_model_that_is_none_is_refused_before_others_are_measured(monkeypatch):
    monkeypatch.setattr(flops, "of_model", lambda *args, **options: pytest.fail("measured first"))
    with pytest.raises(ValueError, match="`model` must be one of"):
        flops.measure(["bsa-tnp", "nobody"])


def test_a_loop_of_unknown_length_is_refused():
    with pytest.raises(ValueError, match="must have loops of known length"):
        counted(lambda x: jax.lax.while_loop(lambda x: x.sum() < 3, lambda x: x + 1, x), (3,))


def test_tiles_of_padding_count_like_others():
    """Attention leaves tiles of hidden keys out when it runs; a count of the program cannot know how many."""

    def attended(q, k, mask):
        return scan_attention(q, k, k, mask=mask, tile=(64, 16))

    q, k, mask = jnp.ones((1, 64, 8)), jnp.ones((1, 64, 8)), jnp.arange(64) < 20
    products = 2 * (2 * 64 * 64 * 8)  # scores, and their sums of values
    assert products < cost(attended, q, k, mask).counted < 2 * products
