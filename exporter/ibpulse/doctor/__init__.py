"""`ibpulse doctor`: facts of a node, checks over them, a page of findings, a redacted bundle.

Facts are found by parts that no device can hang. Checks are pure functions of the facts. Nothing on the node is
changed. A new check is a function with the decorator `check`, in one of the modules `*_checks`.
"""

from ibpulse.doctor.examination import CHECKS, document, examine, page
from ibpulse.doctor.facts import DoctorOptions
from ibpulse.doctor.finding import Finding, Level, worst_level

__all__ = ["CHECKS", "DoctorOptions", "Finding", "Level", "document", "examine", "page", "worst_level"]
