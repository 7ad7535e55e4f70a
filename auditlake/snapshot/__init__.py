"""Stage snapshot: copy tables in parallel under an exported snapshot into `history`."""
