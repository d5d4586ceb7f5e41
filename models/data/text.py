"""Bytes of a data file as text, or the line where they are none."""

from hetsgd.models.data.dataset import DataError


def decode(raw: bytes, origin: str) -> str:
    """UTF-8 text with line ends of one kind and without blanks at its end; `origin` names the file in messages.

    Raises DataError for other bytes and for a file without content.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise DataError(f"{origin}, line {line}: must be UTF-8 text, got byte 0x{raw[error.start]:02x}") from error
    if "\0" in text:
        line = text[: text.index("\0")].count("\n") + 1
        raise DataError(f"{origin}, line {line}: must be text, got a zero byte")
    text = text.replace("\r\n", "\n").replace("\r", "\n").rstrip()
    if not text:
        raise DataError(f"{origin}: must hold rows, the file is empty")
    return text


def shown(text: str) -> str:
    """A value for a message, cut where it is long.

    >>> shown("ab")
    "'ab'"
    """
    return repr(text if len(text) <= 60 else text[:60] + "...")
