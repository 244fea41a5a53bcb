"""Attention biases: functions of a group's invariants, one score for each head.

A bias is called on one pair of points and returns `(head,)`, or `(1,)` where all heads share it; `tile` gives
`(head, q, k)` for two sets of points. Since it sees points only through `group.invariants`, it is invariant under the
group by construction. With groups made by `On` and `Product`, points are whole index sets.

**Reference.** Section 4.3 of the paper.
"""

from bsatnp.bias.combine import Sum as Sum
from bsatnp.bias.combine import Weighted as Weighted
from bsatnp.bias.interface import AbstractBias as AbstractBias
from bsatnp.bias.interface import AbstractGroupBias as AbstractGroupBias
from bsatnp.bias.masks import Causal as Causal
from bsatnp.bias.masks import Window as Window
from bsatnp.bias.radial import AbstractRadialBias as AbstractRadialBias
from bsatnp.bias.radial import ExponentialNetwork as ExponentialNetwork
from bsatnp.bias.radial import Linear as Linear
from bsatnp.bias.radial import RBFNetwork as RBFNetwork
from bsatnp.bias.vector import TISA as TISA
from bsatnp.bias.vector import MLPBias as MLPBias
