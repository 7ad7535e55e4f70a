"""The snapshot stage: copy tables under an exported snapshot into `history`, in parallel."""
