"""Pictures of predictions and of what a model has learnt, one call each.

They need matplotlib: `pip install "bsatnp[plot]"`. Every function takes `ax` (a new figure is made when it is None) and
returns the Axes it drew on, several of them as a list, so that titles, limits and files stay yours:
`plot.band(tgt, pred).figure.savefig("band.png")`. Colours can be told apart by colour-blind readers.
"""

from bsatnp.plot.biases import bias as bias
from bsatnp.plot.checks import calibration as calibration
from bsatnp.plot.checks import pit as pit
from bsatnp.plot.curves import band as band
from bsatnp.plot.curves import forecast as forecast
from bsatnp.plot.places import field as field
from bsatnp.plot.places import maps as maps
from bsatnp.plot.progress import training as training
