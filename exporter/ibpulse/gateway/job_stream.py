"""The data of a job: none yet."""

from __future__ import annotations

from fastapi import APIRouter

from ibpulse.gateway.parts import GatewayParts


def job_router(parts: GatewayParts) -> APIRouter:
    """The routes of jobs."""
    return APIRouter()
