"""Where scaling and likelihood meet: what a likelihood needs in its place stays there, or the pair is refused."""

import equinox as eqx
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

from bsatnp.datasets.scaling import Log, MinMax, Standard
from bsatnp.likelihoods import (
    CategoricalHead,
    Gaussian,
    GaussianHead,
    NegativeBinomialHead,
    PoissonHead,
    Scaled,
)

RAIN = np.array([[0.0], [0.0], [3.5], [12.0], [0.5]])


class Positive(GaussianHead):  # pyright: ignore[reportGeneralTypeIssues]
    """Stands for any head of values from 0 up; what it predicts is not looked at here."""

    fixed = (0.0,)


@pytest.mark.parametrize("head", [Positive(), PoissonHead(), NegativeBinomialHead(), CategoricalHead(3)], ids=repr)
def test_c2_rain_with_a_scaler_that_moves_zero(head):
    kind = type(head).__name__
    with pytest.raises(
        ValueError, match=f"`scaler` must leave 0 as it is for the likelihood of {kind}, but Standard maps"
    ):
        Scaled(head, Standard.fit(RAIN))
    with pytest.raises(ValueError, match=f"likelihood of {kind}, but MinMax maps it to -0.125"):
        Scaled(head, MinMax(np.array([1.0]), np.array([9.0])))


def test_c2_a_change_of_unit_suits_what_is_positive_and_nothing_suits_counts():
    unit = MinMax.fit(RAIN)
    assert Scaled(Positive(), unit).transform(RAIN).max() == 1
    for head in (PoissonHead(), CategoricalHead(2)):
        with pytest.raises(ValueError, match="`scaler` must leave 1 as it is .* but MinMax maps it to 0.0833"):
            Scaled(head, unit)
        none = Scaled(head, MinMax(np.zeros(1), np.ones(1)))
        np.testing.assert_array_equal(none.transform(np.array([[1.0], [0.0]])), [[1], [0]])
        pred = head(jnp.zeros((4, head.raw)))
        assert none.inverse(pred) is pred
    with pytest.raises(ValueError, match="whole numbers from 0 up"):
        Scaled(PoissonHead(), MinMax(np.zeros(1), np.ones(1))).transform(RAIN)


@pytest.mark.parametrize("make", [Standard.fit, MinMax.fit])
def test_c2_a_gaussian_comes_back_in_the_units_of_the_data(make):
    scaled = Scaled(GaussianHead(), make(RAIN))
    f = scaled.transform(RAIN)
    pred = Gaussian(jnp.asarray(f) + 0.1, jnp.full_like(jnp.asarray(f), 0.2))
    back = scaled.inverse(pred)
    width = float(scaled.scaler.width[0])
    expected = scipy.stats.norm(RAIN + 0.1 * width, 0.2 * width)
    np.testing.assert_allclose(back.mean, expected.mean(), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(back.std, expected.std(), rtol=1e-5)
    hidden = scaled.transform(np.ma.masked_equal(RAIN, 12.0))
    np.testing.assert_array_equal(hidden, np.where(RAIN == 12, np.nan, f))
    with pytest.raises(ValueError, match="`pred` must be a Gaussian or have values in their own units, got Poisson"):
        scaled.inverse(PoissonHead()(jnp.zeros((5, 1))))


def test_c2_columns_that_are_not_the_outputs():
    with pytest.raises(ValueError, match=r"`scaler` must have the 2 outputs of GaussianHead, got Standard \(1,\)"):
        Scaled(GaussianHead(2), Standard.fit(RAIN))
    for head in (PoissonHead(out=2), NegativeBinomialHead(out=2)):  # before their 0 and 1 are looked at
        kind = type(head).__name__
        with pytest.raises(ValueError, match=rf"`scaler` must have the 2 outputs of {kind}, got Standard \(1,\)"):
            Scaled(head, Standard(np.zeros(1), np.ones(1)))
    assert isinstance(Scaled(GaussianHead(), Standard.fit(RAIN)), eqx.Module)


def test_c2_a_scaler_that_does_not_take_what_the_likelihood_needs():
    says = "`scaler` must leave 0 as it is for the likelihood of PoissonHead, but Log does not take it"
    with pytest.raises(ValueError, match=says):
        Scaled(PoissonHead(), Log.fit(np.array([[1.0], [2.0]])))


def test_c2_the_output_that_is_moved_is_the_one_that_is_told():
    with pytest.raises(ValueError, match="but MinMax maps it to -0.5"):
        Scaled(PoissonHead(out=2), MinMax(np.array([0.0, 1.0]), np.array([1.0, 3.0])))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: GaussianHead(out=1.5), "`out` must be a whole number, got 1.5"),  # pyright: ignore
        (lambda: PoissonHead(out=True), "`out` must be a whole number, got True"),
        (lambda: CategoricalHead(2.5), "`classes` must be a whole number, got 2.5"),  # pyright: ignore
        (lambda: Gaussian(jnp.zeros((1, 1)), jnp.ones((1, 1))).quantile(np.array([0.1, 0.9])), "`p` must lie strictly"),  # pyright: ignore
    ],
)
def test_numbers_that_are_not_whole_or_not_one(make, says, no_shape_checks):
    with pytest.raises(ValueError, match=says):
        make()


def test_values_that_32_bits_do_not_hold_and_other_byte_orders():
    """Whole numbers from a host, as large as populations, are not wrapped around."""
    big = np.array([[2**40], [3]])
    np.testing.assert_allclose(PoissonHead().encode(big), np.log1p(big.astype(float)), rtol=1e-6)
    np.testing.assert_allclose(GaussianHead().encode(big), big, rtol=1e-6)
    pred = Gaussian(jnp.zeros((2, 1)), jnp.full((2, 1), 1e12))
    for f in (big, big.astype(">i8"), big.astype(">f4")):
        np.testing.assert_allclose(pred.log_prob(f), scipy.stats.norm.logpdf(big, 0, 1e12), rtol=1e-5)
    assert (np.asarray(CategoricalHead(2)(jnp.zeros((2, 2))).log_prob(big)) == -np.inf).all()


@pytest.mark.parametrize(
    "scaler", [Standard(np.zeros(1), np.full(1, 1e-21)), Log(Standard(np.full(1, -60.0), np.full(1, 1.0)))]
)
def test_c12_the_variance_is_positive_in_units_whose_square_is_none(scaler):
    """Such as joules of a molecule: the standard deviation is right, and its square is not zero."""
    found = Scaled(GaussianHead(), scaler).inverse(GaussianHead()(jnp.array([[0.0, -200.0]])))
    assert (np.asarray(found.std) > 0).all() and (np.asarray(found.variance) > 0).all()
