"""Files of models and training states: a header in JSON and named arrays, in one uncompressed npz.

Nothing in a file is ever executed, and no module is imported because a file names it: classes are looked up among
those of `bsatnp`, `equinox.nn` and the caller's own, and filled without running their constructors.
"""

from bsatnp.checkpoint.archive import FORMAT_VERSION as FORMAT_VERSION
from bsatnp.checkpoint.archive import CheckpointError as CheckpointError
from bsatnp.checkpoint.files import check_state as check_state
from bsatnp.checkpoint.files import header as header
from bsatnp.checkpoint.files import load as load
from bsatnp.checkpoint.files import load_state as load_state
from bsatnp.checkpoint.files import save as save
from bsatnp.checkpoint.files import save_state as save_state
from bsatnp.checkpoint.writing import check_writable as check_writable
