"""Neural processes with declared symmetries: the Biased Scan Attention Transformer Neural Process."""
