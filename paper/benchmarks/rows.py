"""What is measured: works, and which peers can do them."""

from typing import Any, NamedTuple

#: Four heads of 32; positions on the plane; five bases in the bias, as in the paper's models.
HEADS, DIM, BASES = 4, 32, 5


class Work(NamedTuple):
    """A problem of attention, or the batch of a training step."""

    name: str
    batch: int
    queries: int
    keys: int
    kinds: tuple[str, ...] = ("forward", "gradient")
    #: Context points of each task, the rest of `keys` being padding.
    counts: tuple[int, ...] = ()


SHORT = Work("B=8 q=1024 k=320", 8, 1024, 320)
LONG = Work("L=4096", 1, 4096, 4096)
#: Compiled only: its temporary memory.
MEMORY = Work("L=8192", 1, 8192, 8192, ("memory",))
#: Evenly over the numbers of context points that the paper draws from.
COUNTS = (128, 183, 238, 292, 347, 402, 456, 511)
#: The paper's 2-D GP batch: 8 tasks, contexts padded to 512, 1,024 targets, 6 blocks, 475,770 parameters.
BATCH = Work("2-D GP batch", 8, 1024, 512, ("inference", "training step"), COUNTS)

WORKS = (SHORT, LONG, MEMORY, BATCH)

#: Peers by worker, and the works of each. Those with "no bias" leave the bias out; the others have it.
PEERS: dict[str, dict[str, tuple[Work, ...]]] = {
    "bsatnp": {
        "scan": WORKS,
        "scan, no bias": (SHORT, LONG),
        "jax.nn.dot_product_attention": (SHORT, LONG),
    },
    "dl4bi": {"dl4bi": WORKS, "dl4bi, tiles of 256": (SHORT, LONG, MEMORY)},
    "torch": {"flex_attention": (SHORT, LONG), "scaled_dot_product_attention": (SHORT, LONG)},
}

#: What pip installs for a worker; this package's own runs in the environment of the benchmark.
REQUIREMENTS = {"dl4bi": ("dl4bi[cpu]==0.1.3",), "torch": ("torch==2.13.0", "numpy")}


def rows(worker: str, peer: str, works: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    """The rows of a peer as its worker reads them."""
    return [
        work._asdict() | {"peer": peer, "kind": kind, "heads": HEADS, "dim": DIM, "bases": BASES}
        for work in PEERS[worker][peer]
        for kind in work.kinds
        if not works or work.name in works
    ]
