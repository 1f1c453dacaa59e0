"""The command ``serve``: an HTTP server for a run or an exported model. One process listens, others
compute.
"""
