"""From a pandas or xarray data set to predictions in the same form, in a few lines.

    columns = frames.Columns("zinc", space=frames.Plane("x", "y"), log="zinc")
    fitted = frames.fit(pandas.read_csv("zinc.csv"), columns, key=jax.random.key(0))
    maps = fitted.predict(pandas.read_csv("grid.csv"))

`Columns` says what the columns mean, and with that which symmetries the model has; `fit` scales, draws tasks from the
data set, trains and keeps the best; `Fitted.predict` gives means, standard deviations and quantiles in the caller's
index, coordinates, order and units. Needs `pip install "bsatnp[pandas]"`, or `"bsatnp[xarray]"` for grids.
"""

from bsatnp.frames.columns import Columns as Columns
from bsatnp.frames.default import default_model as default_model
from bsatnp.frames.drawing import AbstractSplits as AbstractSplits
from bsatnp.frames.drawing import Forecasts as Forecasts
from bsatnp.frames.drawing import Random as Random
from bsatnp.frames.drawing import Windows as Windows
from bsatnp.frames.files import read as read
from bsatnp.frames.files import write as write
from bsatnp.frames.fitted import Fitted as Fitted
from bsatnp.frames.fitted import load as load
from bsatnp.frames.fitting import fit as fit
from bsatnp.frames.grids import grid as grid
from bsatnp.frames.report import Report as Report
from bsatnp.frames.roles import AbstractRole as AbstractRole
from bsatnp.frames.roles import Component as Component
from bsatnp.frames.roles import DayOfYear as DayOfYear
from bsatnp.frames.roles import Forward as Forward
from bsatnp.frames.roles import HourOfDay as HourOfDay
from bsatnp.frames.roles import Phase as Phase
from bsatnp.frames.roles import Plane as Plane
from bsatnp.frames.roles import Sphere as Sphere
from bsatnp.frames.roles import Time as Time
