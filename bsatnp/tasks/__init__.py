"""Points and tasks: what a model is conditioned on and what it is asked.

Host arrays (NumPy) keep their precision until a model takes them: see `centre`. Device arrays are taken as they are.
"""

from bsatnp.tasks.batches import batch as batch
from bsatnp.tasks.batches import bucket as bucket
from bsatnp.tasks.batches import split as split
from bsatnp.tasks.centring import centre as centre
from bsatnp.tasks.points import Points as Points
from bsatnp.tasks.points import Task as Task
from bsatnp.tasks.points import check_pair as check_pair
