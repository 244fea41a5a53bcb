"""Joint draws of a fitted model."""

import jax
import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bsatnp import frames
from bsatnp.frames import plans
from tests.frames.conftest import river_data, soil_data, untrained


def test_joint_samples_are_in_the_units_of_the_values_and_agree_with_the_predictions(soil):
    """Draws of one row alone are draws of its prediction."""
    new = soil_data()[:12]
    drawn = soil.samples(new, samples=4, key=jax.random.key(0))
    assert {name: values.shape for name, values in drawn.items()} == {"zinc": (4, 12), "acid": (4, 12)}
    assert (np.isnan(drawn["acid"]) == new.elev.isna().to_numpy()).all() and (drawn["zinc"][:, :11] > 0).all()
    alone = soil.samples(new[:1], samples=512, key=jax.random.key(1))
    pred = soil.distribution(new[:1])
    for name, one in pred.items():
        many = jax.tree.map(lambda leaf: np.repeat(leaf, 512, 0), one)
        level = np.asarray(many.cdf(alone[name]), np.float64)
        assert scipy.stats.kstest(level.ravel(), "uniform").pvalue > 1e-3


def test_joint_samples_of_a_grid_are_a_grid(soil, monkeypatch):
    """The draws of a table of its cells, in the shape of the grid."""
    site, visit = xr.DataArray([0, 1], dims="site"), xr.DataArray([0, 5], dims="visit")
    grid = soil_data().reset_index(drop=True).to_xarray().isel(index=2 * site + visit)
    drawn = soil.samples(grid, samples=4, key=jax.random.key(0))
    table = soil.samples(grid.to_dataframe(), samples=4, key=jax.random.key(0))
    assert drawn["zinc"].dims == ("sample", "site", "visit") and drawn["zinc"].attrs == {"units": "mg/kg"}
    for name, values in table.items():
        np.testing.assert_array_equal(drawn[name].values.reshape(4, 4), values)
    monkeypatch.setattr("bsatnp.frames.fitted.joint_samples", None)  # refused before the work
    with pytest.raises(ValueError, match="Column 'sample' must have another name in `data`"):
        soil.samples(grid.rename(site="sample"), samples=4, key=jax.random.key(0))


def test_joint_samples_of_labels(soil):
    data = soil_data()
    fitted = untrained(data, frames.Columns("soil", space=frames.Plane("x", "y")))
    (drawn,) = fitted.samples(data[:3], samples=20, key=jax.random.key(0)).values()
    assert drawn.shape == (20, 3) and set(drawn.ravel()) <= {"clay", "peat", "sand"}


def test_joint_samples_that_cannot_be(river, soil, monkeypatch):
    with pytest.raises(ValueError, match="`time` must not be `Forward` for joint samples"):
        river.samples(river_data(), key=jax.random.key(0))
    monkeypatch.setattr(plans, "_LONGER", 0)
    monkeypatch.setattr(plans, "_TARGETS", 4)
    with pytest.raises(ValueError, match="must have few enough rows to share the nearest of 57 context points, got 11"):
        soil.samples(soil_data()[:12], key=jax.random.key(0))
