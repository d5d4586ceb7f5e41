"""Figures of reports: one question per figure, a colour per policy that stays the same in all of them.

Each module has one function from a data frame to a matplotlib figure. Importing it loads seaborn.
"""
