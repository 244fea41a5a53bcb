"""Predictive distributions at the targets, and the heads that build them from the outputs of a network."""

from bsatnp.likelihoods.base import AbstractHead as AbstractHead
from bsatnp.likelihoods.base import AbstractLikelihood as AbstractLikelihood
from bsatnp.likelihoods.categorical import Categorical as Categorical
from bsatnp.likelihoods.categorical import CategoricalHead as CategoricalHead
from bsatnp.likelihoods.counts import NegativeBinomial as NegativeBinomial
from bsatnp.likelihoods.counts import NegativeBinomialHead as NegativeBinomialHead
from bsatnp.likelihoods.counts import Poisson as Poisson
from bsatnp.likelihoods.counts import PoissonHead as PoissonHead
from bsatnp.likelihoods.gaussian import Gaussian as Gaussian
from bsatnp.likelihoods.gaussian import GaussianHead as GaussianHead
from bsatnp.likelihoods.lognormal import LogNormal as LogNormal
from bsatnp.likelihoods.scaled import Scaled as Scaled
