"""The paper's own numbers, in `published.csv` as its extended tables give them: mean ± standard error over five seeds.

Those of "svgp" and "bsa-tnp-160-tasks" are mean ± standard deviation over five seeds of 32 tasks each.

`minutes` are its wall time on one RTX 4090: of training for the training domain, of the test for the others; `seconds`
are those of one sample, and of one task's fit for the sparse process. "bsa-tnp-160-tasks" is the row beside that one.
"""

import csv
import functools
from pathlib import Path

#: (experiment, domain) → model → column → mean ± standard error, as printed.
Numbers = dict[tuple[str, str], dict[str, dict[str, str]]]

#: Floating-point operations of one training and one inference batch of the 2-D GP in units of 1e9, minutes of training,
#: batches a second of inference.
COMPLEXITY = {
    "convcnp": (88, 23, 121.10, 27.56),
    "tnp-d": (217, 72, 65.27, 63.95),
    "pt-te-tnp-32": (310, 101, 72.40, 73.35),
    "bsa-tnp": (94, 31, 36.98, 103.74),
}


@functools.cache
def numbers() -> Numbers:
    """All rows of the file."""
    found: Numbers = {}
    with Path(__file__).with_suffix(".csv").open(newline="") as file:
        for row in csv.DictReader(file):
            key = row.pop("experiment"), row.pop("domain")
            found.setdefault(key, {})[row.pop("model")] = {name: value for name, value in row.items() if value}
    return found
