"""The commands of `hetsgd`, one module each. Importing them loads nothing heavy."""
