"""A curve through given points, as the tests of the analysis have it."""

from tests.analysis.conftest import _plain_curve as _plain_curve
