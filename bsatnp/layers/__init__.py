"""The parts that models are made of. All are written for one task; `jax.vmap` makes a batch."""

from bsatnp.layers.attention import MultiHeadAttention as MultiHeadAttention
from bsatnp.layers.basic import MLP as MLP
from bsatnp.layers.basic import Identity as Identity
from bsatnp.layers.basic import LayerNorm as LayerNorm
from bsatnp.layers.basic import TokenEmbedding as TokenEmbedding
from bsatnp.layers.blocks import KRBlock as KRBlock
from bsatnp.layers.blocks import over_blocks as over_blocks
from bsatnp.layers.blocks import stacked as stacked
from bsatnp.layers.convolution import ResidualBlock as ResidualBlock
from bsatnp.layers.scores import AbstractScore as AbstractScore
from bsatnp.layers.scores import AdditiveScore as AdditiveScore
from bsatnp.layers.scores import InvariantScore as InvariantScore
from bsatnp.layers.set_convolution import Grid as Grid
from bsatnp.layers.set_convolution import SetConvolution as SetConvolution
from bsatnp.layers.set_convolution import grid_between as grid_between
