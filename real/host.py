"""This machine in words: its processor and system, without its name or the names of users."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def processor_name() -> str:
    """The processor as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_host(cores: int) -> str:
    """Processor, usable cores and system: what makes two machines comparable."""
    system = f"{platform.system()} {platform.release()}"
    return f"{processor_name()}, {cores} of {os.cpu_count()} logical CPUs, {system}"
