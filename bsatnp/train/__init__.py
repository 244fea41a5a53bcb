"""Training: an optimiser, streams of batches, and a loop that validates, saves and resumes."""

from bsatnp.train.evaluation import batch_sums as batch_sums
from bsatnp.train.evaluation import evaluate as evaluate
from bsatnp.train.evaluation import learned_nll as learned_nll
from bsatnp.train.evaluation import mean_nll as mean_nll
from bsatnp.train.evaluation import prepare as prepare
from bsatnp.train.loop import Fit as Fit
from bsatnp.train.loop import fit as fit
from bsatnp.train.optimisers import learning_rate as learning_rate
from bsatnp.train.optimisers import optimizer as optimizer
from bsatnp.train.streams import EpochStream as EpochStream
