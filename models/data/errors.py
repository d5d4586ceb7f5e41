"""The errors that bad data raise; imports nothing, so that listing stays instant."""


class DataError(ValueError):
    """A data set or one of its files breaks a rule; the message names file, place, rule and value."""


class MissingDataError(DataError, FileNotFoundError):
    """A data set's file is not there; the message says where it was looked for."""
