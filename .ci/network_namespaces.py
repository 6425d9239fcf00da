"""Acceptance A4 of issue 8: the smoke demo with each service in a network namespace of its own, on the chart's arrows.

    python .ci/network_namespaces.py [--home FOLDER]          (root; iproute2, nsenter, helm as tests/deploy finds it)

The chart is rendered (trial values) and its NetworkPolicies are judged as a cluster judges them. Each Pod becomes a
namespace with one link to a common switch and no route but, by policy routing, the allowed ports of allowed Pods and
the answers to them: no way to the internet, none to the machine. Then: `sqlclimb demo --smoke` must pass; every pair
and port that a policy forbids must fail to connect, every other one that listens must connect; each arrow that a
service tells of in its status is cut once, must be named there, and must heal when it is there again.

The demo's command stands for two Pods, a client and the migrations job: `sqlclimb up` migrates by itself.
"""

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from network_policies import RELEASE_NAMESPACE, Pod, passes

from cli.stack.home import HOME_VARIABLE, Place, StackHome
from shared.control_database import initialise
from tests.deploy.helm import render
from tests.deploy.manifests import of_kind, pod_templates

SUBNET = "10.77.0.{}"
TABLE = "100"
"""The routing table with the way to the switch, reached by the arrows' rules alone."""

PORTS = {
    "verifier": {"verifier": 8001},
    "author": {"author": 8002},
    "inference": {"inference": 8003},
    "rollout": {"rollout": 8004, "ray_dashboard": 8265, "ray_metrics": 8080, "ray": 6379},
    "trainer": {"trainer": 8005},
    "engine": {"engine": 8010},
    "database": {"postgres": 5432},
}
"""The chart's Pods to what listens in them, as a local stack calls it, on the chart's ports."""

COMMAND = "command"
"""Where the demo's command runs."""

CUTS = [
    ("author", "verifier", "verifier", "verifier"),
    ("author", "database", "postgres", "database"),
    ("rollout", "verifier", "verifier", "verifier"),
    ("rollout", "author", "author", "author"),
    ("rollout", "inference", "inference", "inference"),
    ("rollout", "database", "postgres", "database"),
    ("inference", "engine", "engine", "engine"),
    ("inference", "database", "postgres", "database"),
    ("trainer", "rollout", "ray_dashboard", "ray"),
    ("trainer", "database", "postgres", "database"),
]
"""Caller, target, its port, and the check of the caller's status that must fail: all that `/readyz` looks at."""

STATUS_SECONDS = 60

PROBE = """
import errno, json, socket, sys
found = []
for address, port in json.load(sys.stdin):
    with socket.socket() as probe:
        probe.settimeout(2)
        try:
            code = probe.connect_ex((address, port))
        except TimeoutError:
            code = errno.ETIMEDOUT
    found.append("open" if code == 0 else errno.errorcode[code])
json.dump(found, sys.stdout)
"""


@dataclass(frozen=True, eq=False)
class Member:
    """One network namespace and the Pods that it stands for."""

    name: str
    pods: tuple[Pod, ...]
    address: str
    namespace: str

    @property
    def enter(self) -> list[str]:
        """The words that run a command inside."""
        return ["nsenter", f"--net=/run/netns/{self.namespace}", "--"]


@dataclass(frozen=True)
class Arrow:
    """A TCP port that one member may connect to at another."""

    source: Member
    target: Member
    port: int

    def rules(self) -> list[tuple[str, list[str]]]:
        """Namespace and policy rule of each end: requests there, answers back."""
        there = ["to", self.target.address, "ipproto", "tcp", "dport", str(self.port), "lookup", TABLE]
        back = ["to", self.source.address, "ipproto", "tcp", "sport", str(self.port), "lookup", TABLE]
        return [(self.source.namespace, there), (self.target.namespace, back)]

    def draw(self) -> None:
        """Make it a route."""
        for namespace, rule in self.rules():
            ip("-n", namespace, "rule", "add", "pref", "100", *rule)

    def cut(self) -> None:
        """Take the route away."""
        for namespace, rule in self.rules():
            ip("-n", namespace, "rule", "del", "pref", "100", *rule)


def ip(*words: str) -> None:
    """`ip WORDS…`."""
    subprocess.run(["ip", *words], check=True)


def members_of(pods: Sequence[Pod], prefix: str) -> dict[str, Member]:
    """A namespace a Pod, those that the trial values do not make included, and the command's."""
    outside = [
        Pod("clients", {"sqlclimb.io/client": "true"}, RELEASE_NAMESPACE),
        Pod("prometheus", {}, {"kubernetes.io/metadata.name": "monitoring"}),
        Pod("stranger", {}, RELEASE_NAMESPACE),
    ]
    groups: dict[str, tuple[Pod, ...]] = {pod.name: (pod,) for pod in (*pods, *outside)}
    groups[COMMAND] = (*groups["clients"], *groups["migrations"])
    return {
        name: Member(name, group, SUBNET.format(number), f"{prefix}-{name}")
        for number, (name, group) in enumerate(groups.items(), start=1)
    }


@contextlib.contextmanager
def network(members: Sequence[Member], switch: str) -> Iterator[None]:
    """The namespaces and their links, without any route; all gone at the end."""
    with contextlib.ExitStack() as made:

        def add(namespace: str) -> None:
            ip("netns", "add", namespace)
            made.callback(ip, "netns", "delete", namespace)

        add(switch)
        ip("-n", switch, "link", "add", "bridge", "type", "bridge")
        ip("-n", switch, "link", "set", "bridge", "up")
        for member in members:
            add(member.namespace)
            here = ("-n", member.namespace)
            ip(*here, "link", "set", "lo", "up")
            ip("link", "add", "eth0", "netns", member.namespace, "type", "veth", "peer", member.name, "netns", switch)
            ip("-n", switch, "link", "set", member.name, "master", "bridge", "up")
            ip(*here, "link", "set", "eth0", "addrgenmode", "none")  # no way around by IPv6
            ip(*here, "address", "add", f"{member.address}/24", "dev", "eth0", "noprefixroute")
            ip(*here, "link", "set", "eth0", "up")
            ip(*here, "route", "add", SUBNET.format("0/24"), "dev", "eth0", "src", member.address, "table", TABLE)
        yield


def prepare(home: StackHome, members: dict[str, Member]) -> None:
    """A stack whose parts run in the namespaces, and a control database that lets their addresses in."""
    state = home.prepare()
    ports = {name: port for listening in PORTS.values() for name, port in listening.items()}
    places = {
        name: Place(address=members[member].address, enter=members[member].enter)
        for member, listening in PORTS.items()
        for name in listening
    }
    places["ray"] = Place(enter=members["rollout"].enter)  # but for its dashboard, Ray talks within its Pod
    home.save(state.model_copy(update={"ports": state.ports | ports, "places": places}))
    data = home.folder / "control-database"
    if not data.exists():
        initialise(data, "sqlclimb", state.database_password)
        with (data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {SUBNET.format('0/24')} scram-sha-256\n")


def sqlclimb(home: StackHome, member: Member, *words: str) -> "subprocess.CompletedProcess[str]":
    """`sqlclimb WORDS…` inside a namespace."""
    argv = [*member.enter, sys.executable, "-m", "cli.main", *words]
    environment = os.environ | {HOME_VARIABLE: str(home.folder)}
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False)


def probe(source: Member, targets: Sequence[tuple[str, int]]) -> list[str]:
    """`open` or the error of a TCP connect to each address and port."""
    argv = [*source.enter, sys.executable, "-c", PROBE]
    done = subprocess.run(argv, input=json.dumps(targets), capture_output=True, text=True, check=True)
    answers: list[str] = json.loads(done.stdout)
    return answers


def check_pairs(members: dict[str, Member], arrows: set[Arrow]) -> None:
    """Each member against all that listens: arrows connect, nothing else does."""
    wanted = [(members[name], port) for name, listening in PORTS.items() for port in listening.values()]
    listening = [(member, port) for member, port in wanted if probe(member, [(member.address, port)]) == ["open"]]
    deaf = [f"{member.name}:{port}" for member, port in wanted if (member, port) not in listening]
    print(f"listens on loopback only: {', '.join(deaf) or 'none'}", flush=True)
    wrong, errors, connected = [], dict[str, int](), 0
    for source in members.values():
        others = [(target, port) for target, port in listening if target is not source]
        answers = probe(source, [(target.address, port) for target, port in others])
        for (target, port), answer in zip(others, answers, strict=True):
            if (Arrow(source, target, port) in arrows) != (answer == "open"):
                wrong.append(f"{source.name} -> {target.name}:{port} {answer}")
            elif answer == "open":
                connected += 1
            else:
                errors[answer] = errors.get(answer, 0) + 1
    print(f"pairs: {connected} allowed ones connect; forbidden ones that fail, by error: {errors}", flush=True)
    assert not wrong, wrong


def state_of(home: StackHome, member: Member, part: str) -> str:
    """What `sqlclimb status` says of a part."""
    return str(json.loads(sqlclimb(home, member, "status", "--json").stdout)["services"][part]["state"])


def wait_for_state(home: StackHome, member: Member, part: str, beginning: str) -> tuple[str, float]:
    """The state that begins so, and after how many seconds."""
    started = time.monotonic()
    while not (state := state_of(home, member, part)).startswith(beginning):
        assert time.monotonic() - started < STATUS_SECONDS, f"{part} says {state!r}, not {beginning!r}"
    return state, time.monotonic() - started


def check_cuts(home: StackHome, members: dict[str, Member]) -> None:
    """Each arrow of `CUTS` taken away and drawn again."""
    command = members[COMMAND]
    for caller, target, port, check in CUTS:
        arrow = Arrow(members[caller], members[target], PORTS[target][port])
        arrow.cut()
        said, seconds = wait_for_state(home, command, caller, "not ready")
        arrow.draw()
        _, healed = wait_for_state(home, command, caller, "ready")
        print(f"without {caller} -> {target}:{arrow.port}, after {seconds:.1f} s: {said}; well again {healed:.1f} s")
        assert f"{check}: " in said, said


def main() -> None:
    """Namespaces, demo, pairs, cuts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, default=Path("/tmp/sqlclimb-namespaces"))
    arguments = parser.parse_args()
    missing = [name for name in ("ip", "nsenter") if shutil.which(name) is None]
    if os.geteuid() != 0 or missing:
        raise SystemExit(f"network namespaces need root and iproute2 and util-linux; missing here: {missing or 'root'}")
    manifests = render("cpu-trial")
    policies = of_kind(manifests, "NetworkPolicy")
    pods = {pod.component: Pod(pod.component, pod.labels, RELEASE_NAMESPACE) for pod in pod_templates(manifests)}
    prefix = f"sqlclimb-{os.getpid()}"
    members = members_of(list(pods.values()), prefix)
    arrows = {
        Arrow(source, members[target], port)
        for source in members.values()
        for target, listening in PORTS.items()
        for port in listening.values()
        if members[target] is not source and any(passes(policies, pod, pods[target], port) for pod in source.pods)
    }
    home = StackHome(arguments.home)
    command = members[COMMAND]
    with network(list(members.values()), f"{prefix}-switch"):
        for arrow in arrows:
            arrow.draw()
        print(f"{len(members)} namespaces, {len(arrows)} arrows", flush=True)
        prepare(home, members)
        try:
            started = time.monotonic()
            demo = sqlclimb(home, command, "demo", "--smoke", "--keep")
            print(demo.stdout[-1500:] if demo.returncode == 0 else demo.stdout + demo.stderr)
            print(f"demo: exit {demo.returncode} after {time.monotonic() - started:.0f} s", flush=True)
            assert demo.returncode == 0
            check_pairs(members, arrows)
            check_cuts(home, members)
        finally:
            print(sqlclimb(home, command, "down").stdout)


if __name__ == "__main__":
    main()
