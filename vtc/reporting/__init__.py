"""What was done to an exchange, for people to read: its report, its transcript, and a case of it to keep."""

from vtc.reporting.case import Case
from vtc.reporting.report import Parties, Report

__all__ = ["Case", "Parties", "Report"]
