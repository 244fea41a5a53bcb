"""Neural processes with declared symmetries: the Biased Scan Attention Transformer Neural Process.

What most programs need is here; `bsatnp.groups`, `bsatnp.bias`, `bsatnp.simulate`, `bsatnp.predict` and the other rooms
hold the rest.
"""

from bsatnp.attention import dense_attention as dense_attention
from bsatnp.attention import scan_attention as scan_attention
from bsatnp.checkpoint import load as load
from bsatnp.checkpoint import save as save
from bsatnp.models import BSATNP as BSATNP
from bsatnp.tasks import Points as Points
from bsatnp.tasks import Task as Task
from bsatnp.train import evaluate as evaluate
from bsatnp.train import fit as fit
