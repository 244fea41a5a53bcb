"""Models: maps from a context and targets to a distribution at the targets."""

from bsatnp.models.base import AbstractModel as AbstractModel
from bsatnp.models.bsatnp import BSATNP as BSATNP
