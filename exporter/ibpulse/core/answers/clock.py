"""`/api/v1/clock`: the wall clock of a node."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from ibpulse.core.answers.members import AnswerPart, Count

# names are a part of paths, so no dots alone and no slashes; colons for addresses of IPv6
_NODE_NAME = re.compile(r"[A-Za-z0-9:][A-Za-z0-9._:-]{0,252}", re.ASCII)


def is_node_name(text: str) -> bool:
    """Whether a text may be the name of a node."""
    return _NODE_NAME.fullmatch(text) is not None


def _host(text: str) -> str:
    return text if is_node_name(text) else ""


class ClockAnswer(AnswerPart):
    """The wall clock of the node, and whose it is."""

    node: Annotated[str, AfterValidator(_host)] = Field(
        description="Name of the node: the first of capture.node, or its host name."
    )
    synchronised: bool | None = Field(
        description="Whether the kernel says that its clock is synchronised; null if it does not say."
    )
    time_ns: Count = Field(description="Time while this was answered, in nanoseconds since the epoch.")
