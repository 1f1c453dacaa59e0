"""The commands ``new`` and ``rename``: the files of an experiment, and the name of the team's
package.
"""
