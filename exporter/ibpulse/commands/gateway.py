"""`ibpulse gateway`: serves the pages and the data of many nodes."""

from __future__ import annotations

import argparse
from collections.abc import Mapping

from ibpulse.agent.config import Settings
from ibpulse.agent.config.loading import DEFAULT
from ibpulse.agent.config.settings import ADDRESS
from ibpulse.base.errors import ConfigError
from ibpulse.gateway.parts import GatewayCaptures
from ibpulse.gateway.push import PushOptions
from ibpulse.gateway.service import GatewayOptions, run_gateway

LISTEN_ADDRESS = ":10056"


def run(arguments: argparse.Namespace, settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT."""
    options = gateway_options(settings, arguments.origins)
    if not options.sources:
        raise ConfigError(["nodes.sources: no source of nodes; give one, like dns+NAME:PORT, or use --demo=8"])
    return run_gateway(options)


def gateway_options(settings: Settings, origins: Mapping[str, str]) -> GatewayOptions:
    """The gateway of these settings; `origins` maps each to the source of its value."""
    web, nodes, capture, own = settings.web, settings.nodes, settings.capture, settings.gateway
    given = origins["web.listen-address"] != DEFAULT
    address = web.listen_address if given else ADDRESS.parse(LISTEN_ADDRESS)
    return GatewayOptions(
        host=address.host,
        port=address.port,
        sources=nodes.sources,
        node_config=nodes.config_file,
        web_config=web.config_file,
        hosts=web.hosts,
        captures=GatewayCaptures(capture.before, capture.after),
        allow_unauthenticated=capture.allow_unauthenticated,
        push=PushOptions(
            alertmanagers=own.alertmanager_url,
            alertmanager_config=own.alertmanager_config_file,
            webhooks=own.webhook_url,
            webhook_config=own.webhook_config_file,
            labels=own.alertmanager_labels,
        ),
        unexplained_ns=own.unexplained_after,
    )
