"""Simulators: endless streams of tasks whose truth is known, and the exact posterior of the Gaussian ones."""

from bsatnp.simulate.draws import sample as sample
from bsatnp.simulate.exact import Posterior as Posterior
from bsatnp.simulate.exact import log_marginal as log_marginal
from bsatnp.simulate.exact import posterior as posterior
from bsatnp.simulate.gneiting import Gneiting as Gneiting
from bsatnp.simulate.gneiting import GneitingTasks as GneitingTasks
from bsatnp.simulate.gp import GPTasks as GPTasks
from bsatnp.simulate.kernels import AbstractKernel as AbstractKernel
from bsatnp.simulate.kernels import Matern as Matern
from bsatnp.simulate.kernels import SquaredExponential as SquaredExponential
from bsatnp.simulate.sir import SIRTasks as SIRTasks
from bsatnp.simulate.sphere import GreatCircleExponential as GreatCircleExponential
from bsatnp.simulate.sphere import SphereTasks as SphereTasks
