"""The nodes of a gateway, to be asked through it."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated

from pydantic import Field

from ibpulse.base.deadline import DaemonThreads
from ibpulse.base.errors import DaemonError, DiscoveryError
from ibpulse.core.answers.clock import is_node_name
from ibpulse.core.answers.members import AnswerPart, Name, at_most
from ibpulse.core.client.transport import HttpPeer, read_answer
from ibpulse.gateway.nodes.node_config import NodeConfigFile
from ibpulse.gateway.nodes.target_sources import MAX_LIST_BYTES, SOURCE_SECONDS, TargetSource
from ibpulse.gateway.nodes.targets import MAX_LABELS, MAX_TARGETS, Target, parse_address


class GatewayNode(AnswerPart):
    """A node of `/api/v1/nodes`."""

    node: Name
    labels: dict[Name, Name] = Field(default_factory=dict)


class GatewayNodes(AnswerPart):
    """`/api/v1/nodes` of a gateway."""

    nodes: Annotated[list[GatewayNode], at_most(MAX_TARGETS)]


class GatewaySource(TargetSource):
    """The nodes of a gateway, each at its place below `/node/`, with the access of the gateway."""

    def __init__(self, url: str, config: NodeConfigFile) -> None:
        """Nothing is asked yet.

        Raises:
            ValueError: the URL is not that of a server.
        """
        super().__init__(url)
        _, self._url = parse_address(url)
        self._config = config

    async def ask(self, threads: DaemonThreads) -> tuple[Target, ...]:
        """The nodes of the gateway at this moment."""
        peer = HttpPeer(self._url, self._config.access)
        try:
            answer = await peer.get("/api/v1/nodes", max_bytes=MAX_LIST_BYTES, seconds=SOURCE_SECONDS)
            found = read_answer(GatewayNodes, answer)
        except DaemonError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise DiscoveryError(["has no list of nodes, so it is no gateway; give the address of one"]) from error
            raise DiscoveryError([str(error)]) from error
        finally:
            await peer.close()
        return tuple(
            Target(node.node, f"{self._url}/node/{node.node}", dict(list(node.labels.items())[:MAX_LABELS]), self.name)
            for node in found.nodes
            if is_node_name(node.node)
        )
