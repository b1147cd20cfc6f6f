"""`ibpulse doctor`: facts of a node, checks over them, a page of findings.

A child process collects the facts, with a deadline for every device. Checks are pure functions of the facts. Doctor
changes nothing on the node. To add a check, decorate a function with `check` in the module of its subject.
"""

from ibpulse.agent.doctor.examination import CHECKS, document, examine, page
from ibpulse.agent.doctor.facts import DoctorOptions, Finding, Level, worst_level

__all__ = ["CHECKS", "DoctorOptions", "Finding", "Level", "document", "examine", "page", "worst_level"]
