"""The paper's figures, drawn from trained models and from results: `python -m paper figures`."""
