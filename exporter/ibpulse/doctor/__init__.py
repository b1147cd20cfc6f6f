"""What is right and wrong with the measuring on this node: facts gathered, checks over them, a page, a bundle.

Facts are gathered by parts that no device can hang; checks are pure functions of the facts. It must not change
anything on the node, nor print.
"""

from ibpulse.doctor.checks import CHECKS, examine
from ibpulse.doctor.facts import DoctorOptions
from ibpulse.doctor.finding import Finding, Level, worst_level
from ibpulse.doctor.page import document, page

__all__ = ["CHECKS", "DoctorOptions", "Finding", "Level", "document", "examine", "page", "worst_level"]
