"""The system calls a sandboxed Postgres may make, as a classic BPF program for seccomp. Pure.

An allowlist: what Postgres, initdb and the C library need to read, write, share memory and talk over Unix sockets.
Everything else fails with EPERM, whatever kernel adds it: mounts, namespaces, ptrace, other processes' memory, bpf,
perf, keys, io_uring, userfaultfd, modules, kexec, reboot, swap, clocks, credentials, file handles, memfd. Four calls
are judged by an argument: `socket` and `socketpair` make Unix sockets only, `clone` no namespace, `ioctl` types into
no terminal. `clone3`, whose flags a filter cannot see, is ENOSYS, at which the C library falls back to `clone`.

Numbers are the kernel's (`asm/unistd_64.h`; `asm-generic/unistd.h` for aarch64); the program's form is described in
seccomp(2) and the kernel's `Documentation/userspace-api/seccomp_filter.rst`.
"""

import errno
import platform
import struct

# name, number on x86_64, number on aarch64 (`-`: there the C library uses a newer call)
_ALLOWED = """
accept 43 202; accept4 288 242; access 21 -; alarm 37 -; arch_prctl 158 -; bind 49 200; brk 12 214; chdir 80 49;
chmod 90 -; clock_getres 229 114; clock_gettime 228 113; clock_nanosleep 230 115; close 3 57; close_range 436 436;
connect 42 203; copy_file_range 326 285; creat 85 -; dup 32 23; dup2 33 -; dup3 292 24; epoll_create 213 -;
epoll_create1 291 20; epoll_ctl 233 21; epoll_pwait 281 22; epoll_pwait2 441 441; epoll_wait 232 -; eventfd2 290 19;
execve 59 221; exit 60 93; exit_group 231 94; faccessat 269 48; faccessat2 439 439; fadvise64 221 223; fallocate 285 47;
fchdir 81 50; fchmod 91 52; fchmodat 268 53; fcntl 72 25; fdatasync 75 83; flock 73 32; fork 57 -; fstat 5 80;
fstatfs 138 44; fsync 74 82; ftruncate 77 46; futex 202 98; get_robust_list 274 100; getcwd 79 17; getdents 78 -;
getdents64 217 61; getegid 108 177; geteuid 107 175; getgid 104 176; getgroups 115 158; getitimer 36 102;
getpeername 52 205; getpgid 121 155; getpgrp 111 -; getpid 39 172; getppid 110 173; getpriority 140 141;
getrandom 318 278; getresgid 120 150; getresuid 118 148; getrlimit 97 163; getrusage 98 165; getsid 124 156;
getsockname 51 204; getsockopt 55 209; gettid 186 178; gettimeofday 96 169; getuid 102 174; kill 62 129; link 86 -;
linkat 265 37; listen 50 201; lseek 8 62; lstat 6 -; madvise 28 233; membarrier 324 283; mincore 27 232; mkdir 83 -;
mkdirat 258 34; mmap 9 222; mprotect 10 226; mremap 25 216; msync 26 227; munmap 11 215; nanosleep 35 101;
newfstatat 262 79; open 2 -; openat 257 56; pause 34 -; pipe 22 -; pipe2 293 59; poll 7 -; ppoll 271 73; prctl 157 167;
pread64 17 67; preadv 295 69; preadv2 327 286; prlimit64 302 261; pselect6 270 72; pwrite64 18 68; pwritev 296 70;
pwritev2 328 287; read 0 63; readahead 187 213; readlink 89 -; readlinkat 267 78; readv 19 65; recvfrom 45 207;
recvmsg 47 212; rename 82 -; renameat 264 38; renameat2 316 276; restart_syscall 219 128; rmdir 84 -; rseq 334 293;
rt_sigaction 13 134; rt_sigpending 127 136; rt_sigprocmask 14 135; rt_sigqueueinfo 129 138; rt_sigreturn 15 139;
rt_sigsuspend 130 133; rt_sigtimedwait 128 137; sched_getaffinity 204 123; sched_yield 24 124; select 23 -;
sendfile 40 71; sendmsg 46 211; sendto 44 206; set_robust_list 273 99; set_tid_address 218 96; setitimer 38 103;
setpgid 109 154; setrlimit 160 164; setsid 112 157; setsockopt 54 208; shmat 30 196; shmctl 31 195; shmdt 67 197;
shmget 29 194; shutdown 48 210; sigaltstack 131 132; signalfd4 289 74; stat 4 -; statfs 137 43; statx 332 291;
symlink 88 -; symlinkat 266 36; sync_file_range 277 84; sysinfo 99 179; tgkill 234 131; time 201 -;
timer_create 222 107; timer_delete 226 111; timer_gettime 224 108; timer_settime 223 110; times 100 153;
truncate 76 45; umask 95 166; uname 63 160; unlink 87 -; unlinkat 263 35; utimensat 280 88; vfork 58 -; wait4 61 260;
waitid 247 95; write 1 64; writev 20 66
"""
# judged by an argument
_CLONE = (56, 220)
_SOCKETS = ((41, 198), (53, 199))  # socket, socketpair
_IOCTL = (16, 29)
_CLONE3 = (435, 435)

_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
"""Machine to its column above and its AUDIT_ARCH number (`linux/audit.h`)."""

_NEW_NAMESPACE = 0x7E020000
"""CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID and NEWNET (`linux/sched.h`)."""
_AF_UNIX = 1
_TIOCSTI = 0x5412
"""Puts characters into a terminal's input."""

_ALLOW = 0x7FFF0000
_KILL = 0x80000000  # the whole process: a call by another architecture's numbers
_ERRNO = 0x00050000

# classic BPF (linux/bpf_common.h) over struct seccomp_data: nr at 0, arch at 4, arguments of 8 bytes from 16
_LOAD, _EQUAL, _ANY_BIT, _RETURN = 0x20, 0x15, 0x45, 0x06
_NUMBER, _ARCHITECTURE = 0, 4


def supported(machine: str | None = None) -> bool:
    """Whether there is a filter for this machine (as `platform.machine()` names it)."""
    return (machine or platform.machine()) in _ARCHITECTURES


def bpf_filter(machine: str | None = None) -> bytes:
    """The program, as an array of `struct sock_filter` (8 bytes each). Raises KeyError for an unsupported machine."""
    column, architecture = _ARCHITECTURES[machine or platform.machine()]
    numbers = [entry.split()[1 + column] for entry in _ALLOWED.replace("\n", " ").split(";")]
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE),
        *((_EQUAL, 1, 0, architecture), (_RETURN, 0, 0, _KILL)),
        (_LOAD, 0, 0, _NUMBER),
        *_returning(_CLONE3[column], _denied(errno.ENOSYS)),
        *_judged(_CLONE[column], 0, (_ANY_BIT, 0, 1, _NEW_NAMESPACE)),
        *_judged(_SOCKETS[0][column], 0, (_EQUAL, 1, 0, _AF_UNIX)),
        *_judged(_SOCKETS[1][column], 0, (_EQUAL, 1, 0, _AF_UNIX)),
        *_judged(_IOCTL[column], 1, (_EQUAL, 0, 1, _TIOCSTI)),
    ]
    for number in numbers:
        if number != "-":
            program += _returning(int(number), _ALLOW)
    program.append((_RETURN, 0, 0, _denied(errno.EPERM)))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in program)


_Instruction = tuple[int, int, int, int]
"""Code, instructions to skip when true, when false, constant."""


def _denied(number: int) -> int:
    return _ERRNO | number


def _returning(number: int, action: int) -> list[_Instruction]:
    return [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, action)]


def _judged(number: int, argument: int, test: _Instruction) -> list[_Instruction]:
    """A call decided by the low half of one argument: `test` skips one instruction where the call is allowed."""
    return [
        (_EQUAL, 0, 4, number),
        (_LOAD, 0, 0, 16 + 8 * argument),
        test,
        (_RETURN, 0, 0, _denied(errno.EPERM)),
        (_RETURN, 0, 0, _ALLOW),
    ]
