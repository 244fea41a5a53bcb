"""Pictures of a model and of its run: learnt biases, training curves, calibration."""

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
import pytest

from bsatnp import metrics, plot
from bsatnp.bias import TISA, Causal, RBFNetwork, Sum, Weighted
from bsatnp.groups import SO3, Cyclic, On, Scaling, TimeShift, Translation
from bsatnp.likelihoods import Gaussian, Poisson


class Model:
    """Two blocks whose biases differ; arrays carry a leading axis, as those of a BSA-TNP do."""

    def __init__(self, make):
        one = make()
        self.bias = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), one)


def radial():
    return RBFNetwork(On("s", Translation(2)), heads=3, basis=2, lengths=(0.5, 2.0))


def test_a_bias_by_head_and_block(drawn):
    first, second = plot.bias(Model(radial), "s", 4.0, unit="km")
    one = radial()
    x = np.asarray(first.lines[0].get_xdata(), float)
    assert (x[0], x[-1]) == (0, 4) and first.get_xlabel() == "distance in s (km)"
    for head in range(3):
        weight, rate = np.asarray(one.weight)[head], np.exp(np.asarray(one.log_rate)[head])
        expected = (weight * np.exp(-rate * x[:, None] ** 2)).sum(-1)
        np.testing.assert_allclose(first.lines[head].get_ydata(), expected, atol=1e-5)
        rate = np.exp(2 * np.asarray(one.log_rate)[head])
        expected = 2 * (weight * np.exp(-rate * x[:, None] ** 2)).sum(-1)
        np.testing.assert_allclose(second.lines[head].get_ydata(), expected, atol=1e-5)
    assert (first.get_title(), second.get_title()) == ("block 1", "block 2")
    assert drawn(first) > 20
    (alone,) = plot.bias(Model(radial), "s", 4.0, block=1)
    np.testing.assert_array_equal(alone.lines[0].get_ydata(), second.lines[0].get_ydata())


def test_lags_have_a_sign_and_masks_end_lines():
    """A lag is query minus key: nothing is drawn for keys that are later than the query."""
    on = On("t", TimeShift())
    bumps = TISA(on, dim=1, heads=2, basis=2, key=jax.random.key(0))
    space = Weighted(RBFNetwork(On("s", SO3()), heads=2, lengths=(5, 60)), heads=2)
    both = Sum(bumps, Sum(space, Causal(on)))
    (axis,) = plot.bias(both, "t", 2.0)
    x, y = (np.asarray(values, float) for values in axis.lines[1].get_data())
    assert axis.get_xlabel() == "lag in t" and x[0] == -2
    assert np.isnan(y[x < 0]).all()
    for i in (250, 400):
        expected = bumps({"t": jnp.array([x[i]])}, {"t": jnp.zeros(1)})[1]
        np.testing.assert_allclose(y[i], expected, rtol=1e-4)
    (axis,) = plot.bias(both, "s", 180.0)
    assert axis.get_xlabel() == "distance in s" and np.isfinite(axis.lines[0].get_ydata()).all()
    quarter = [{"s": jnp.array([longitude, 0.0])} for longitude in (0.0, 90.0)]
    np.testing.assert_allclose(np.asarray(axis.lines[0].get_ydata())[100], space.bias(*quarter)[0], rtol=1e-4)


@pytest.mark.parametrize("group", [SO3(3), Cyclic(24.0), Scaling(2)], ids=lambda group: type(group).__name__)
def test_every_kind_of_component_has_points_to_move_along(group):
    (axis,) = plot.bias(RBFNetwork(On("s", group), heads=1, lengths=(1.0, 5.0)), "s", 3.0)
    y = np.asarray(axis.lines[0].get_ydata())
    assert np.isfinite(y).all() and y[0] > y[-1] + 0.1


def test_models_without_such_a_bias_are_refused():
    with pytest.raises(ValueError, match="`model` must be a bias or have one, got object"):
        plot.bias(object(), "s", 1.0)
    with pytest.raises(ValueError, match=r"`component` must be one that .* got 't' of \['s'\]"):
        plot.bias(radial(), "t", 1.0)
    with pytest.raises(ValueError, match="`block` must be between 0 and 1, got 2"):
        plot.bias(Model(radial), "s", 1.0, block=2)
    with pytest.raises(ValueError, match="`reach` must be positive"):
        plot.bias(radial(), "s", 0.0)


HISTORY = [
    {"step": 50, "loss": 1.5, "seconds": 2.0, "validation_nll": 1.2, "validation_crps": 0.5},
    {"step": 100, "loss": 1.1, "seconds": 4.0},
    {"step": 150, "loss": 0.9, "seconds": 6.0, "validation_nll": 1.3, "validation_crps": 0.4},
]


def test_training_curves_and_the_best_validation(drawn):
    axis = plot.training(HISTORY)
    loss, score, best = axis.lines
    np.testing.assert_array_equal(loss.get_data(), [[50, 100, 150], [1.5, 1.1, 0.9]])
    np.testing.assert_array_equal(score.get_data(), [[50, 150], [1.2, 1.3]])
    np.testing.assert_array_equal(best.get_data(), [[50], [1.2]])
    assert axis.get_ylabel() == "NLL (nats per value)" and drawn(axis) > 20
    crps = plot.training(HISTORY, metric="crps", against="seconds", unit="µg/m³")
    np.testing.assert_array_equal(crps.lines[0].get_data(), [[2, 6], [0.5, 0.4]])
    assert (crps.get_xlabel(), crps.get_ylabel()) == ("training time (s)", "CRPS (µg/m³)")
    assert len(plot.training(HISTORY[1:2]).lines) == 1
    right = [row | {"validation_accuracy": row["loss"] / 2} for row in HISTORY]
    assert plot.training(right, metric="accuracy").lines[-1].get_ydata() == [0.75]
    with pytest.raises(ValueError, match="`history` must have at least one row"):
        plot.training([])
    with pytest.raises(ValueError, match="'validation_mae'"):
        plot.training(HISTORY, metric="mae")
    with pytest.raises(ValueError, match="`against` must be a number in every row"):
        plot.training(HISTORY, against="epoch")


def test_calibration_of_real_forecasts(air, drawn):
    ctx, tgt, pred, _ = air
    axis = plot.calibration(pred, tgt.f, tgt.observed, label="persistence")
    narrow = Gaussian(pred.mean, np.asarray(pred.std) / 3)
    assert plot.calibration(narrow, tgt.f, tgt.observed, label="a third of it", ax=axis) is axis
    diagonal, one, two = axis.lines
    np.testing.assert_allclose(one.get_xdata(), metrics.LEVELS)
    np.testing.assert_allclose(one.get_ydata(), metrics.calibration(pred, tgt.f, tgt.observed))
    assert (np.asarray(two.get_ydata()) <= np.asarray(one.get_ydata())).all()
    assert diagonal.get_label() == "calibrated" and one.get_color() != two.get_color()
    assert drawn(axis) > 20


def test_calibration_on_axes_that_hold_lines_has_its_diagonal_once(air):
    _, tgt, pred, _ = air
    axis = plt.figure().add_subplot()
    axis.plot([0, 1], [0.5, 0.5], label="mine")
    for label in ("one", "two"):
        plot.calibration(pred, tgt.f, tgt.observed, label=label, ax=axis)
    assert [line.get_label() for line in axis.lines] == ["mine", "calibrated", "one", "two"]
    assert [text.get_text() for text in axis.texts] == ["intervals too wide", "intervals too narrow"]
    assert axis.lines[2].get_color() != axis.lines[3].get_color()


@pytest.mark.parametrize("picture", [plot.calibration, plot.pit])
def test_nothing_observed_is_refused(air, picture):
    _, tgt, pred, _ = air
    with pytest.raises(ValueError, match="`observed` must have at least one value"):
        picture(pred, tgt.f, np.zeros_like(tgt.observed))


def test_pit_of_real_counts(air, drawn):
    _, tgt, pred, _ = air
    counts, rate = np.round(tgt.f), np.asarray(pred.mean) + 1
    axis = plot.pit(Poisson(rate), counts, tgt.observed, bins=5)
    heights = [bar.get_height() for bar in axis.patches if bar.get_width() < 0.5]
    np.testing.assert_allclose(heights, 5 * np.asarray(metrics.pit_histogram(Poisson(rate), counts, tgt.observed, 5)))
    np.testing.assert_allclose(np.mean(heights), 1, rtol=1e-5)
    assert drawn(axis) > 20


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "matplotlib", None)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"pip install 'bsatnp\[plot\]'"):
        plot.training(HISTORY)
