"""Real data sets, read from files that you point at."""

from bsatnp.datasets import beijing as beijing
from bsatnp.datasets import beijing_tasks as beijing_tasks
from bsatnp.datasets import era5 as era5
from bsatnp.datasets import era5_tasks as era5_tasks
from bsatnp.datasets.scaling import Log as Log
from bsatnp.datasets.scaling import MinMax as MinMax
from bsatnp.datasets.scaling import Standard as Standard
