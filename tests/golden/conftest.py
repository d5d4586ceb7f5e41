"""The option that writes the golden files anew: give it with this folder, `pytest tests/golden --regen`."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--regen", action="store_true", default=False, help="write the golden files anew")
