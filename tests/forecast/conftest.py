"""Fixtures of the tests of forecasts."""

from tests.helpers.training import run as run
