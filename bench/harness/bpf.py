"""What BPF programs cost, as the kernel counts it. Asked of the kernel itself, so that it is the
same for every tool."""

import ctypes
import os
import re
from pathlib import Path

SYS_BPF = 321  # x86-64
BPF_PROG_GET_FD_BY_ID, BPF_OBJ_GET_INFO_BY_FD, BPF_ENABLE_STATS = 13, 15, 32
# In struct bpf_prog_info.
NAME_AT, NAME_SIZE, INFO_SIZE = 64, 16, 256

libc = ctypes.CDLL(None, use_errno=True)


def bpf(command, attributes):
    buffer = ctypes.create_string_buffer(attributes, max(len(attributes), 128))
    result = libc.syscall(SYS_BPF, command, buffer, len(buffer))
    if result < 0:
        raise OSError(ctypes.get_errno(), f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return result


class Statistics:
    """While this lasts, the kernel takes the time of every run of a program. The machine's setting
    stays as it is."""

    def __enter__(self):
        self.fd = bpf(BPF_ENABLE_STATS, (0).to_bytes(4, "little"))
        return self

    def __exit__(self, *_):
        os.close(self.fd)


def name_of(program):
    fd = bpf(BPF_PROG_GET_FD_BY_ID, program.to_bytes(4, "little"))
    try:
        info = ctypes.create_string_buffer(INFO_SIZE)
        attributes = (
            fd.to_bytes(4, "little")
            + INFO_SIZE.to_bytes(4, "little")
            + ctypes.addressof(info).to_bytes(8, "little")
        )
        bpf(BPF_OBJ_GET_INFO_BY_FD, attributes)
        return info.raw[NAME_AT : NAME_AT + NAME_SIZE].split(b"\0")[0].decode(errors="replace")
    finally:
        os.close(fd)


def costs(pid):
    """For each program that the process holds, by number: (ns, runs) since it was loaded, with
    statistics on."""
    found = {}
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            fields = dict(re.findall(r"^(\w+):\s*(\d+)", info.read_text(), re.MULTILINE))
        except OSError:
            continue
        if "run_cnt" in fields:
            found[int(fields["prog_id"])] = (int(fields["run_time_ns"]), int(fields["run_cnt"]))
    return found


def counters_of(pid, name):
    """The file that tells the runs of the program of that name which the process holds."""
    for info in Path(f"/proc/{pid}/fdinfo").iterdir():
        try:
            program = re.search(r"^prog_id:\s*(\d+)", info.read_text(), re.MULTILINE)
            if program and name_of(int(program[1])) == name:
                return info
        except OSError:
            continue
    raise OSError(f"process {pid} has no program {name}")


def difference(before, after):
    """What ran in between, by name: {"ns", "runs"}. Programs of the same name count as one."""
    total = {}
    for program, (ns, runs) in after.items():
        earlier_ns, earlier_runs = before.get(program, (0, 0))
        if runs > earlier_runs:
            entry = total.setdefault(name_of(program), {"ns": 0, "runs": 0})
            entry["ns"] += ns - earlier_ns
            entry["runs"] += runs - earlier_runs
    return total
