"""Exact softmax attention with any score function, in memory linear in length.

`scan_attention` works tile by tile; `dense_attention` has the same signature, holds the whole matrix, and is the
oracle.

**Reference.** Section 4.4 (Biased Scan Attention) of the paper.
"""

from bsatnp.attention.dense import dense_attention as dense_attention
from bsatnp.attention.scan import scan_attention as scan_attention
