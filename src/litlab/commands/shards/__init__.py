"""``shards``: the images of an experiment as a few large files, to stream them."""
