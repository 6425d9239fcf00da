"""Which connections NetworkPolicies let through, judged as a cluster judges them. Pure.

A connection passes when the egress rules of its source and the ingress rules of its target both allow it; a Pod that no
policy selects in a direction is open in it (https://kubernetes.io/docs/concepts/services-networking/network-policies/).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Manifest = dict[str, Any]

RELEASE_NAMESPACE = {"kubernetes.io/metadata.name": "team"}


@dataclass(frozen=True)
class Pod:
    """One end of a connection."""

    name: str
    labels: Mapping[str, str]
    namespace: Mapping[str, str]
    """Labels of its namespace."""


def passes(policies: Sequence[Manifest], source: Pod, target: Pod, port: int) -> bool:
    """Whether policies of the release's namespace let a TCP connection through."""
    return _open(policies, "egress", source, target, port) and _open(policies, "ingress", target, source, port)


def _open(policies: Sequence[Manifest], direction: str, here: Pod, there: Pod, port: int) -> bool:
    specs = [policy["spec"] for policy in policies if here.namespace == RELEASE_NAMESPACE]
    selecting = [
        spec
        for spec in specs
        if direction.capitalize() in spec["policyTypes"] and _selects(spec["podSelector"], here.labels)
    ]
    rules = [rule for spec in selecting for rule in spec.get(direction) or []]
    return not selecting or any(_allows(rule, direction, there, port) for rule in rules)


def _allows(rule: Manifest, direction: str, there: Pod, port: int) -> bool:
    peers = rule.get("to" if direction == "egress" else "from")
    ports = rule.get("ports")
    meant = not ports or any(entry["protocol"] == "TCP" and entry["port"] == port for entry in ports)
    return meant and (not peers or any(_is(peer, there) for peer in peers))


def _is(peer: Manifest, there: Pod) -> bool:
    if "ipBlock" in peer:  # of addresses outside the cluster
        return False
    namespace = peer.get("namespaceSelector")
    near = there.namespace == RELEASE_NAMESPACE if namespace is None else _selects(namespace, there.namespace)
    return near and _selects(peer.get("podSelector", {}), there.labels)


def _selects(selector: Manifest, labels: Mapping[str, str]) -> bool:
    """Raises ValueError for a selector by expressions, which the chart does not use."""
    if selector.keys() - {"matchLabels"}:
        raise ValueError(f"cannot judge the selector {selector}")
    wanted: dict[str, str] = selector.get("matchLabels") or {}
    return wanted.items() <= labels.items()
