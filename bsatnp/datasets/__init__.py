"""Real data sets read from files that you point at: nothing is downloaded here."""

from bsatnp.datasets import beijing as beijing
from bsatnp.datasets import beijing_tasks as beijing_tasks
from bsatnp.datasets.scaling import MinMax as MinMax
from bsatnp.datasets.scaling import Standard as Standard
