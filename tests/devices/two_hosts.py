"""Run twice at once by `test_devices.py`, as two processes of two devices each: trains, predicts, writes what it got.

Arguments: the coordinator's address, the number of this process, a folder.
"""

import pathlib
import sys

import jax
import numpy as np

COORDINATOR, NUMBER, FOLDER = sys.argv[1], int(sys.argv[2]), sys.argv[3]
jax.distributed.initialize(COORDINATOR, num_processes=2, process_id=NUMBER)

import bsatnp  # noqa: E402
from bsatnp.predict import predict  # noqa: E402
from tests import registry  # noqa: E402
from tests.devices import eight  # noqa: E402

if __name__ == "__main__":
    assert jax.process_count() == 2 and len(jax.devices()) == 4 and len(jax.local_devices()) == 2
    among = jax.make_mesh((4,), ("batch",))
    run = {"steps": 3, "key": jax.random.key(0), "progress": False, "optimizer": registry.plain_descent()}
    run |= {"validation": eight.stream, "validation_batches": 2, "checkpoint": f"{FOLDER}/state.npz"}
    result = bsatnp.fit(registry.biased(), eight.stream, mesh=among, **run)
    if NUMBER == 1:  # which does not see the state that the first has written
        (pathlib.Path(FOLDER) / "elsewhere").mkdir()
        run["checkpoint"] = f"{FOLDER}/elsewhere/state.npz"
    said = eight.refused(lambda: bsatnp.fit(registry.biased(), eight.stream, mesh=among, **run))
    assert "must be on a disk that every process sees" in said, said
    ctx, tgt = eight.points(50), eight.points(30, values=False)
    answers = [
        predict(result.best, ctx, tgt, mesh=jax.make_mesh(shape, axes))
        for shape, axes in (((4,), ("tgt",)), ((2, 2), ("tgt", "ctx")))
    ]
    leaves = [np.asarray(leaf) for leaf in jax.tree.leaves((result.best, answers)) if hasattr(leaf, "dtype")]
    np.savez(f"{FOLDER}/{NUMBER}.npz", *leaves)
