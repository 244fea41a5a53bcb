"""Groups: actions on points, paired with the invariants of a pair of points.

A group acts on the points of one component, `(point, dim)`, or, through `On` and `Product`, on a whole index set. Its
`invariants` are what is left of a pair of points once the action is forgotten; whatever is computed from them is
invariant by construction (the paper's Theorem 2).

**Reference.** Section 3 and Theorems 1 and 2 of the paper.
"""

from bsatnp.groups.categories import Permutation as Permutation
from bsatnp.groups.components import On as On
from bsatnp.groups.components import Product as Product
from bsatnp.groups.components import check_is_group as check_is_group
from bsatnp.groups.components import components as components
from bsatnp.groups.components import example_point as example_point
from bsatnp.groups.components import factors as factors
from bsatnp.groups.components import has_width as has_width
from bsatnp.groups.components import hashes as hashes
from bsatnp.groups.components import squared_length as squared_length
from bsatnp.groups.motions import SO3 as SO3
from bsatnp.groups.motions import Euclidean as Euclidean
from bsatnp.groups.protocol import Group as Group
from bsatnp.groups.protocol import pair_invariants as pair_invariants
from bsatnp.groups.protocol import safe_norm as safe_norm
from bsatnp.groups.scaling import Scaling as Scaling
from bsatnp.groups.shifts import Cyclic as Cyclic
from bsatnp.groups.shifts import TimeShift as TimeShift
from bsatnp.groups.shifts import Translation as Translation
