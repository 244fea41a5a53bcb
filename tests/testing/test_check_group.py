"""The law checker of groups finds every kind of fault, and says where."""

import dataclasses
import subprocess
import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st

from bsatnp.groups import On, Translation
from bsatnp.testing import LawError, check_group, points


class Shift:
    """Shifts of a line, in a class of a user's own without a base."""

    dim = 1
    shift_invariant = True

    def sample(self, *, key):
        return 10 * jax.random.normal(key, (1,))

    def identity(self):
        return jnp.zeros(1)

    def compose(self, g, h):
        return g + h

    def inverse(self, g):
        return -g

    def act(self, g, points):
        return points + g[None]

    def invariants(self, p, q):
        return p - q


def but(**methods):
    """The shifts with other methods."""
    return type("Wrong", (Shift,), methods)()


def test_a_right_group_passes():
    check_group(Shift())


def python_branch(self, g, points):
    return points + g[None] if float(g[0]) != 0 else points


def refuse(self, points):
    if np.abs(points).max() > 10:
        raise ValueError("too far")


@pytest.mark.parametrize(
    ("law", "methods"),
    [
        ("elements go through jit and vmap", {"act": python_branch}),
        ("act keeps the shape and the type of points", {"act": lambda self, g, points: (points + g[None])[:, 0]}),
        ("act keeps the shape and the type", {"act": lambda self, g, points: (points + g[None]).astype(jnp.bfloat16)}),
        ("sample draws elements that move points", {"sample": lambda self, *, key: jnp.zeros(1)}),
        ("compose, inverse and identity give elements of one shape", {"identity": lambda self: jnp.zeros((1, 1))}),
        ("the identity moves nothing", {"identity": lambda self: jnp.ones(1)}),
        (r"inverse\(g\) undoes g", {"inverse": lambda self, g: g}),
        (r"compose\(g, h\) acts as h, then g", {"compose": lambda self, g, h: g - h}),
        (
            "invariants of a pair are a vector': `invariants` of .* must be a vector, .* got shape",
            {"invariants": lambda self, p, q: (p - q)[0]},
        ),
        ("keys of sample give different elements", {"sample": lambda self, *, key: jnp.ones(1)}),
        (
            "the identity moves nothing': off by .* where one point has several names",
            {"act": lambda self, g, points: (points + g[None]) % 2},
        ),
        ("act does not change invariants", {"invariants": lambda self, p, q: p + q}),
        ("act does not change invariants", {"invariants": lambda self, p, q: jnp.log(p - p) - jnp.log(q - q)}),
        (
            "gradients of invariants are finite': some are not: .* take `bsatnp.groups.safe_norm` there",
            {"invariants": lambda self, p, q: jnp.sqrt(jnp.sum((p - q) ** 2))[None]},
        ),
        ("squared is the squared length of invariants", {"squared": lambda self, p, q: (2 * (p - q) ** 2).sum()}),
        ("check accepts moved points", {"check": refuse}),
        (
            "a shift_invariant group ignores a common shift",
            {
                "sample": lambda self, *, key: jax.random.rademacher(key, (1,), float),
                "identity": lambda self: jnp.ones(1),
                "compose": lambda self, g, h: g * h,
                "inverse": lambda self, g: g,
                "act": lambda self, g, points: g[None] * points,
                "invariants": lambda self, p, q: p * q,
            },
        ),
    ],
)
def test_every_law_has_a_group_that_breaks_it(law, methods):
    with pytest.raises(LawError, match=law):
        check_group(but(**methods))


def test_a_class_that_lacks_a_method():
    class Half:
        def sample(self, *, key):
            return key

    with pytest.raises(LawError, match="missing = .*identity"):
        check_group(Half())


def test_a_class_and_what_has_no_hash():
    with pytest.raises(LawError, match="Translation breaks the law 'a group is an object': Translation is a class"):
        check_group(Translation)
    unhashable = dataclasses.dataclass(type("Shift", (Shift,), {}))()
    with pytest.raises(LawError, match="Shift breaks the law 'a group has a hash': make it a `@dataclass.frozen=True"):
        check_group(unhashable)
    with pytest.raises(ValueError, match="`group` must have a hash, as with `@dataclass.frozen=True.`, got Shift"):
        On("s", unhashable)
    with pytest.raises(ValueError, match="`group` must be an object with .*, got the class Translation"):
        On("s", Translation)


def test_arrays_that_training_would_move():
    class Centred(eqx.Module):
        centre: jax.Array
        sample = Shift.sample
        identity = Shift.identity
        compose = Shift.compose
        inverse = Shift.inverse
        act = Shift.act
        invariants = Shift.invariants

    with pytest.raises(LawError, match="training would move"):
        check_group(Centred(jnp.zeros(1)))


def test_the_error_names_the_simplest_case():
    """Off only beyond 2 on the axis: the case found is the first grid point beyond, the others are zero."""

    def act(self, g, points):
        return points + g[None] + jnp.where(points > 2, 1.0, 0.0).astype(points.dtype)

    with pytest.raises(LawError) as found:
        check_group(but(act=act), n=2, examples=100)
    error = found.value
    assert error.law == "the identity moves nothing"
    assert error.deviation == pytest.approx(1, abs=1e-4)
    x = np.sort(np.asarray(error.case["x"])[:, 0])
    assert x == pytest.approx([0, 15 * 0.137], abs=1e-6)  # 14 steps are 1.918
    assert "Wrong breaks the law" in str(error) and "2.055" in str(error)


def test_rounding_is_no_fault():
    """Large shifts lose digits of float32, squares lose more."""

    class Far(Translation):  # a subclass only here, to change one method
        def invariants(self, p, q):
            return jnp.sum((p - q) ** 2)[None] * 100

    check_group(Far(2, scale=1000.0))


def test_own_points_and_distances():
    """Shifts of an angle whose names repeat after 360."""

    class Turn(Shift):
        shift_invariant = False

        def act(self, g, points):
            return jnp.mod(points + g[None], 360)

        def invariants(self, p, q):
            turn = jnp.radians(p - q)
            return jnp.concatenate([jnp.cos(turn), jnp.sin(turn)])

    def apart(x, y):
        turn = np.radians(np.asarray(x, np.float64) - np.asarray(y, np.float64))
        return np.abs(np.exp(1j * turn) - 1).max()

    with pytest.raises(LawError, match="the identity moves nothing"):
        check_group(Turn(), points=st.tuples(st.integers(-500, 500).map(float)))
    check_group(Turn(), points=st.tuples(st.integers(-500, 500).map(float)), apart=apart)
    check_group(Turn(), points=lambda n, *, key: 360 * jax.random.normal(key, (n, 1)), apart=apart)


def test_points_that_cannot_be_guessed():
    class Unknown(Shift):
        dim = None

    with pytest.raises(ValueError, match="`points` must say what Unknown acts on"):
        check_group(Unknown())
    with pytest.raises(ValueError, match="`points` must say"):
        points(Unknown(), 3)


def test_without_hypothesis_one_sentence_says_what_to_install():
    program = (
        "import sys; sys.modules['hypothesis'] = None\n"
        "import bsatnp.testing as t\n"
        "from bsatnp.groups import Translation\n"
        "try:\n    t.check_group(Translation(1))\n"
        "except ImportError as error:\n    print(error)\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.strip() == "`bsatnp.testing` needs hypothesis, which `pip install bsatnp[testing]` brings."
