"""Models: maps from a context and targets to a distribution at the targets."""

from bsatnp.models.base import AbstractModel as AbstractModel
from bsatnp.models.bsatnp import BSATNP as BSATNP
from bsatnp.models.convcnp import ConvCNP as ConvCNP
from bsatnp.models.tetnp import PTTETNP as PTTETNP
from bsatnp.models.tetnp import TETNP as TETNP
from bsatnp.models.tnpd import TNPD as TNPD
from bsatnp.models.transformer import AbstractTransformer as AbstractTransformer
