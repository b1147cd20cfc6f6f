"""The Pod Security Standards as checks of a pod, control by control. It must not know the chart.

Written from the standards' text (https://kubernetes.io/docs/concepts/security/pod-security-standards/), of which it
takes the newest version; controls of Windows are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Pod = dict[str, Any]

DEFAULT_CAPABILITIES = frozenset(
    {
        *("AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP"),
        *("SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"),
    }
)
SAFE_SYSCTLS = frozenset(
    {
        *("kernel.shm_rmid_forced", "net.ipv4.ip_local_port_range", "net.ipv4.ip_unprivileged_port_start"),
        *("net.ipv4.tcp_syncookies", "net.ipv4.ping_group_range", "net.ipv4.ip_local_reserved_ports"),
        *("net.ipv4.tcp_keepalive_time", "net.ipv4.tcp_fin_timeout", "net.ipv4.tcp_keepalive_intvl"),
        "net.ipv4.tcp_keepalive_probes",
    }
)
SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
VOLUME_TYPES = frozenset(
    {
        *("configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim"),
        *("projected", "secret"),
    }
)
PROFILES = frozenset({"RuntimeDefault", "Localhost"})


@dataclass(frozen=True, slots=True)
class Control:
    """One control: its level, its name in the standards, and whether a pod keeps it."""

    level: str
    name: str
    kept: Callable[[Pod], bool]


def broken(pod: Pod) -> set[tuple[str, str]]:
    """Level and name of the controls that a pod's spec does not keep."""
    return {(control.level, control.name) for control in CONTROLS if not control.kept(pod)}


def _containers(pod: Pod) -> Iterator[Pod]:
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from pod.get(kind, ())


def _contexts(pod: Pod) -> Iterator[Pod]:
    """The security contexts of the containers."""
    return (container.get("securityContext") or {} for container in _containers(pod))


def _all_contexts(pod: Pod) -> list[Pod]:
    return [pod.get("securityContext") or {}, *_contexts(pod)]


def _effective(pod: Pod, key: str) -> Iterator[Any]:
    """What each container's context says, or else the pod's."""
    whole = pod.get("securityContext") or {}
    return (context.get(key, whole.get(key)) for context in _contexts(pod))


def _capabilities(pod: Pod, key: str) -> Iterator[frozenset[str]]:
    return (frozenset((context.get("capabilities") or {}).get(key, ())) for context in _contexts(pod))


def _volume_types(pod: Pod) -> set[str]:
    return {key for volume in pod.get("volumes", ()) for key in volume if key != "name"}


def _handlers(pod: Pod) -> Iterator[Pod]:
    for container in _containers(pod):
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            yield container.get(probe) or {}
        yield from (container.get("lifecycle") or {}).values()


def _names_no_host(pod: Pod) -> bool:
    kinds = ("httpGet", "tcpSocket", "grpc")
    return not any((handler.get(kind) or {}).get("host") for handler in _handlers(pod) for kind in kinds)


def _selinux(pod: Pod) -> bool:
    options = [context.get("seLinuxOptions") or {} for context in _all_contexts(pod)]
    return all(o.get("type", "") in SELINUX_TYPES and not o.get("user") and not o.get("role") for o in options)


def _apparmor(pod: Pod) -> bool:
    profiles = [(context.get("appArmorProfile") or {}).get("type", "RuntimeDefault") for context in _all_contexts(pod)]
    return set(profiles) <= PROFILES


def _seccomp_not_off(pod: Pod) -> bool:
    profiles = [(context.get("seccompProfile") or {}).get("type", "RuntimeDefault") for context in _all_contexts(pod)]
    return set(profiles) <= PROFILES


def _sysctls(pod: Pod) -> bool:
    given = (pod.get("securityContext") or {}).get("sysctls") or ()
    return all(sysctl["name"] in SAFE_SYSCTLS for sysctl in given)


CONTROLS = (
    Control(
        "baseline",
        "Host Namespaces",
        lambda pod: not any(pod.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")),
    ),
    Control("baseline", "Privileged Containers", lambda pod: not any(c.get("privileged") for c in _contexts(pod))),
    Control(
        "baseline",
        "Capabilities",
        lambda pod: all(added <= DEFAULT_CAPABILITIES for added in _capabilities(pod, "add")),
    ),
    Control("baseline", "HostPath Volumes", lambda pod: "hostPath" not in _volume_types(pod)),
    Control(
        "baseline",
        "Host Ports",
        lambda pod: not any(port.get("hostPort") for c in _containers(pod) for port in c.get("ports", ())),
    ),
    Control("baseline", "Host Probes / Lifecycle Hooks", _names_no_host),
    Control("baseline", "AppArmor", _apparmor),
    Control("baseline", "SELinux", _selinux),
    Control(
        "baseline",
        "/proc Mount Type",
        lambda pod: all(c.get("procMount", "Default") == "Default" for c in _contexts(pod)),
    ),
    Control("baseline", "Seccomp", _seccomp_not_off),
    Control("baseline", "Sysctls", _sysctls),
    Control("restricted", "Volume Types", lambda pod: _volume_types(pod) <= VOLUME_TYPES),
    Control(
        "restricted",
        "Privilege Escalation",
        lambda pod: all(c.get("allowPrivilegeEscalation") is False for c in _contexts(pod)),
    ),
    Control(
        "restricted", "Running as Non-root", lambda pod: all(value is True for value in _effective(pod, "runAsNonRoot"))
    ),
    Control(
        "restricted",
        "Running as Non-root user",
        lambda pod: all(context.get("runAsUser") != 0 for context in _all_contexts(pod)),
    ),
    Control(
        "restricted",
        "Seccomp",
        lambda pod: all((value or {}).get("type") in PROFILES for value in _effective(pod, "seccompProfile")),
    ),
    Control(
        "restricted",
        "Capabilities",
        lambda pod: (
            all("ALL" in dropped for dropped in _capabilities(pod, "drop"))
            and all(added <= {"NET_BIND_SERVICE"} for added in _capabilities(pod, "add"))
        ),
    ),
)
"""Every control for Linux, in the order of the standards."""
