"""The parts that models are made of. All are written for one task; `jax.vmap` makes a batch."""

from bsatnp.layers.attention import AdditiveScore as AdditiveScore
from bsatnp.layers.attention import MultiHeadAttention as MultiHeadAttention
from bsatnp.layers.basic import MLP as MLP
from bsatnp.layers.basic import Identity as Identity
from bsatnp.layers.basic import LayerNorm as LayerNorm
from bsatnp.layers.basic import TokenEmbedding as TokenEmbedding
from bsatnp.layers.blocks import KRBlock as KRBlock
