"""A PyTorch Lightning project: experiments described in YAML, run by ``python -m project``."""
