"""Checks for groups, biases, likelihoods and models of your own, and hypothesis strategies that draw what they act on.

    def test_my_group():
        check_group(MyGroup())
        check_bias(RBFNetwork(MyGroup()))
        check_likelihood(MyHead())
        check_model(BSATNP(bias=RBFNetwork(On("s", MyGroup())), key=key), On("s", MyGroup()))

A check draws elements and points at random. Where a law does not hold it looks for the simplest case that shows so, and
raises `LawError` with the name of the law, that case, and how far off it is. Needs `pip install bsatnp[testing]`.

**Reference.** Section 3 and Theorem 2 of the paper.
"""

from bsatnp.testing.bias_laws import check_bias as check_bias
from bsatnp.testing.group_laws import check_group as check_group
from bsatnp.testing.likelihood_laws import check_likelihood as check_likelihood
from bsatnp.testing.model_laws import check_model as check_model
from bsatnp.testing.perturb import perturbed as perturbed
from bsatnp.testing.search import LawError as LawError
from bsatnp.testing.strategies import elements as elements
from bsatnp.testing.strategies import keys as keys
from bsatnp.testing.strategies import points as points
