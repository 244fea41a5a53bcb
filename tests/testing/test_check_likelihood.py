"""The law checker of likelihoods passes those of the package, and finds every kind of fault."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from bsatnp.likelihoods import (
    AbstractHead,
    AbstractLikelihood,
    CategoricalHead,
    Gaussian,
    GaussianHead,
    NegativeBinomialHead,
    PoissonHead,
)
from bsatnp.testing import LawError, check_likelihood


class Coin(AbstractLikelihood):
    """Heads or tails, 1 or 0: counts that compile in a moment."""

    prob: jax.Array

    @property
    def mean(self):
        return self.prob

    @property
    def variance(self):
        return self.prob * (1 - self.prob)

    @property
    def std(self):
        return jnp.sqrt(self.variance)

    def log_prob(self, f):
        return jnp.log(jnp.where(f == 1, self.prob, 1 - self.prob))

    def cdf(self, f):
        return jnp.where(f < 0, 0.0, jnp.where(f < 1, 1 - self.prob, 1.0))

    def quantile(self, p):
        return jnp.where(p <= 1 - self.prob, 0.0, 1.0)

    def covers(self, f, level):
        return (f >= self.quantile((1 - level) / 2)) & (f <= self.quantile((1 + level) / 2))

    def sample(self, *, key):
        return jax.random.bernoulli(key, self.prob).astype(self.prob.dtype)

    def crps(self, f):
        return (self.prob - f) ** 2


class CoinHead(AbstractHead):
    """Log odds in, `make` out."""

    make: Any = eqx.field(static=True, default=Coin)
    out: int = eqx.field(static=True, default=1)
    fixed = (0.0, 1.0)

    @property
    def raw(self):
        return self.out

    @property
    def features(self):
        return self.out

    def encode(self, f):
        return jnp.asarray(f)

    def __call__(self, raw):
        return self.make(jax.nn.sigmoid(raw))

    def check(self, f):
        pass


HEADS = [GaussianHead(2), CategoricalHead(3), CoinHead()]
SLOW = [pytest.param(head, marks=pytest.mark.slow) for head in (PoissonHead(2), NegativeBinomialHead(2))]


@pytest.mark.parametrize("head", [*HEADS, *SLOW], ids=lambda head: type(head).__name__)
def test_the_heads_of_the_package_pass(head):
    check_likelihood(head, examples=4)


class Faulty(GaussianHead):
    """A Gaussian head, a subclass only here, to change one method of its likelihood."""

    make: Any = eqx.field(static=True, default=Gaussian)

    def __call__(self, raw):
        mean, scale = jnp.split(raw, 2, axis=-1)
        return self.make(mean, jax.nn.softplus(scale) + 0.1)


def but(**methods):
    return Faulty(2, make=type("Wrong", (Gaussian,), methods))


def wrapped(method, change):
    """A method of `Gaussian` whose result is changed."""
    return lambda self, *args, **kwargs: change(self, getattr(Gaussian, method)(self, *args, **kwargs))


@pytest.mark.parametrize(
    ("law", "methods"),
    [
        ("`log_prob` must have .3, 2., got .3,.", {"log_prob": wrapped("log_prob", lambda s, x: x.sum(-1))}),
        ("`quantile` must have", {"quantile": lambda self, p: self.mean[..., 0]}),
        ("log_prob and its gradient are finite", {"log_prob": wrapped("log_prob", lambda s, x: jnp.sqrt(x - 1e3))}),
        (
            "beside a missing value the gradient of log_prob is finite",
            {"masked": lambda self, observed: self},
        ),
        ("cdf rises between 0 and 1", {"cdf": wrapped("cdf", lambda s, x: 1 - x)}),
        (r"quantile\(p\) is where cdf reaches p", {"cdf": wrapped("cdf", lambda s, x: x**2)}),
        ("log_prob is the slope of cdf", {"log_prob": wrapped("log_prob", lambda s, x: x + 0.1)}),
        ("covers holds between two quantiles", {"covers": wrapped("covers", lambda s, x: ~x)}),
        ("draws follow cdf", {"sample": wrapped("sample", lambda s, x: 2 * x)}),
        ("draws have the crps", {"crps": wrapped("crps", lambda s, x: 2 * x)}),
        ("variance is the square of std", {"variance": property(lambda self: self.std)}),
    ],
)
def test_every_law_has_a_likelihood_that_breaks_it(law, methods):
    with pytest.raises(LawError, match=law):
        check_likelihood(but(**methods), examples=4)


@pytest.mark.parametrize(
    ("law", "methods"),
    [
        ("log_prob is the step of cdf at whole numbers", {"log_prob": lambda self, f: Coin.log_prob(self, f) + 0.1}),
        ("draws have the mean", {"mean": property(lambda self: self.prob + 0.3)}),
        ("draws spread no farther than std", {"variance": property(lambda self: self.prob * (1 - self.prob) / 4)}),
    ],
)
def test_faults_of_counts_are_found(law, methods):
    with pytest.raises(LawError, match=law):
        check_likelihood(CoinHead(make=type("Wrong", (Coin,), methods)), examples=4)


def test_what_is_no_likelihood_is_refused():
    class Raw(GaussianHead):
        def __call__(self, raw) -> Any:
            return raw

    with pytest.raises(LawError, match="a head makes a likelihood"):
        check_likelihood(Raw())
