"""Trained models that come with the package, each with a card that says what it was trained for and how it did.

`names()` lists them, `card(name)` shows a card, `load(name)` gives the model. A name ends in a version, `…-v1`; without
it the newest one is meant. Weights of a version never change, and a file that is not the one of its card is refused.
"""

from bsatnp.pretrained.cards import Card as Card
from bsatnp.pretrained.shelf import WEIGHTS as WEIGHTS
from bsatnp.pretrained.shelf import add as add
from bsatnp.pretrained.shelf import card as card
from bsatnp.pretrained.shelf import load as load
from bsatnp.pretrained.shelf import names as names
