"""What every other subpackage may use: options, progress, tables, YAML, messages, the team's
package.
"""
