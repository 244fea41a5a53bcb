"""Scores of a predictive distribution, how well it is calibrated, and how probable large values are.

Every score takes a likelihood, the values `f` and the boolean `observed`, both `(…, tgt, out)`, as NumPy or JAX arrays.
What was not observed never counts.
"""

from bsatnp.metrics.calibration import LEVELS as LEVELS
from bsatnp.metrics.calibration import calibration as calibration
from bsatnp.metrics.calibration import exceedance as exceedance
from bsatnp.metrics.calibration import pit as pit
from bsatnp.metrics.calibration import pit_histogram as pit_histogram
from bsatnp.metrics.scores import Accumulator as Accumulator
from bsatnp.metrics.scores import Sums as Sums
from bsatnp.metrics.scores import accuracy as accuracy
from bsatnp.metrics.scores import coverage as coverage
from bsatnp.metrics.scores import crps as crps
from bsatnp.metrics.scores import mae as mae
from bsatnp.metrics.scores import nll as nll
from bsatnp.metrics.scores import rmse as rmse
from bsatnp.metrics.scores import summarise as summarise
from bsatnp.metrics.scores import sums as sums
