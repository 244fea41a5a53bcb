"""The command line: `bsatnp fit`, `bsatnp predict`, `bsatnp check`."""

from bsatnp.cli.commands import main as main
