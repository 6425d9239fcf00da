"""The system call filter: as a program, and from inside the isolations that apply it."""

import errno
import platform
import struct
import subprocess
from pathlib import Path

import pytest

from services.verifier.sandbox.isolation import Isolation
from services.verifier.sandbox.seccomp import bpf_filter, supported
from tests.verifier.isolations import ISOLATIONS, isolation_named

ALLOW, ERRNO, KILL = 0x7FFF0000, 0x00050000, 0x80000000
MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}

DENIED = {
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "move_mount": (429, 429), "fsopen": (430, 430),
    "open_tree": (428, 428), "mount_setattr": (442, 442), "chroot": (161, 51), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272), "bpf": (321, 280),
    "perf_event_open": (298, 241), "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218),
    "unshare": (272, 97), "setns": (308, 268), "io_uring_setup": (425, 425), "io_uring_enter": (426, 426),
    "userfaultfd": (323, 282), "kexec_load": (246, 104), "kexec_file_load": (320, 294), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "swapon": (167, 224), "swapoff": (168, 225),
    "reboot": (169, 142), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264), "pidfd_getfd": (438, 438),
    "personality": (135, 92), "settimeofday": (164, 170), "setuid": (105, 146), "mknodat": (259, 33),
    "execveat": (322, 281), "memfd_create": (319, 279), "semget": (64, 190), "msgget": (68, 186), "splice": (275, 76),
    "of a kernel to come": (600, 600),
}  # fmt: skip
"""Name to its number on x86_64 and aarch64."""

SOCKET, CLONE, CLONE3, IOCTL, READ = (41, 198), (56, 220), (435, 435), (16, 29), (0, 63)
CLONE_NEWUSER, CLONE_NEWNET, CLONE_VM = 0x10000000, 0x40000000, 0x100
AF_UNIX, AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK = 1, 2, 10, 16, 17, 40


def action(machine: str, number: int, *arguments: int, architecture: int | None = None) -> int:
    """What the kernel would do: an interpreter of the few classic BPF instructions in use."""
    code = bpf_filter(machine)
    program = [struct.unpack_from("=HBBI", code, at) for at in range(0, len(code), 8)]
    data = struct.pack(
        "=II Q 6Q", number, architecture or MACHINES[machine][1], 0, *arguments, *[0] * (6 - len(arguments))
    )
    at, accumulator = 0, 0
    while True:
        operation, if_true, if_false, constant = program[at]
        at += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, constant)
        elif operation == 0x06:
            return int(constant)
        else:
            holds = accumulator == constant if operation == 0x15 else bool(accumulator & constant)
            at += if_true if holds else if_false


@pytest.mark.parametrize("machine", MACHINES)
def test_what_escapes_are_made_of_is_denied(machine: str) -> None:
    column = MACHINES[machine][0]
    assert {
        name for name, numbers in DENIED.items() if action(machine, numbers[column]) != ERRNO | errno.EPERM
    } == set()
    for family in (AF_INET, AF_INET6, AF_NETLINK, AF_PACKET, AF_VSOCK):
        assert action(machine, SOCKET[column], family) == ERRNO | errno.EPERM
    for flags in (CLONE_NEWUSER, CLONE_VM | CLONE_NEWNET):
        assert action(machine, CLONE[column], flags) == ERRNO | errno.EPERM
    assert action(machine, IOCTL[column], 0, 0x5412) == ERRNO | errno.EPERM
    assert action(machine, CLONE3[column]) == ERRNO | errno.ENOSYS


@pytest.mark.parametrize("machine", MACHINES)
def test_what_postgres_needs_is_allowed(machine: str) -> None:
    column = MACHINES[machine][0]
    assert action(machine, READ[column]) == ALLOW
    assert action(machine, SOCKET[column], AF_UNIX) == ALLOW
    assert action(machine, CLONE[column], CLONE_VM) == ALLOW
    assert action(machine, IOCTL[column], 0, 0x5401) == ALLOW


def test_another_architectures_numbers_end_the_process() -> None:
    assert action("x86_64", READ[0], architecture=0x40000003) == KILL
    assert action("x86_64", 0x40000000 | READ[0]) == ERRNO | errno.EPERM  # x32
    assert not supported("riscv64")


PROBED = ("ptrace", "process_vm_readv", "keyctl", "unshare", "io_uring_setup", "memfd_create", "semget")
"""Calls that an unprivileged process may make: that they fail with EPERM is the filter's doing."""

PTRACE_ATTACH = 16


def probe(isolation: Isolation, folder: Path) -> dict[str, int]:
    """The error number of each call, made from inside; 0 where it succeeds. Perl is there on every Debian."""
    column = MACHINES[platform.machine()][0]
    calls = {name: (DENIED[name][column], PTRACE_ATTACH if name == "ptrace" else 0, 0, 0, 0, 0) for name in PROBED}
    calls |= {f"socket {family}": (SOCKET[column], family, 2, 0) for family in (AF_UNIX, AF_INET, AF_INET6, AF_NETLINK)}
    script = "".join(
        f"print '{name}=', (syscall({','.join(map(str, call))}) == -1 ? $!+0 : 0), qq(\\n);"
        for name, call in calls.items()
    )
    argv = isolation.command(["/usr/bin/perl", "-e", script], folder)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=20, check=True)
    return {name: int(number) for name, number in (line.split("=") for line in done.stdout.splitlines())}


@pytest.mark.parametrize("name", ISOLATIONS)
def test_inside_the_denied_calls_fail_and_without_the_filter_they_do_not(name: str, open_folder: Path) -> None:
    inside = open_folder / "inside"
    inside.mkdir()
    filtered = isolation_named(name, open_folder)
    filtered.own(inside)
    found = probe(filtered, inside)
    assert found.pop(f"socket {AF_UNIX}") == 0
    assert set(found.values()) == {errno.EPERM}, found
    unfiltered = probe(isolation_named(f"{name} without seccomp", open_folder), inside)
    assert [call for call in PROBED if unfiltered[call] == errno.EPERM] == []
    assert unfiltered[f"socket {AF_INET}"] == 0
