"""The nursery: a process that has loaded torch once and forks lanes and stand-ins from then on.

    python -m hetsgd.real.nursery_main FD PARENT

It has one thread and never computes, so that forking it is safe; devices other than the CPU get a process of
their own instead (`launch.py`). For each request it gets a connection, forks, and tells the number of the child;
when a child ends it tells how. It ends when the parent closes the connection, and its children with it.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import sys
from typing import Final

from hetsgd.real.accelerator import Accelerator
from hetsgd.real.child import die_with, run_child
from hetsgd.real.lane import Lane
from hetsgd.real.launch import ENDED, NEWS, REQUEST, STARTED

_DUTIES: Final = (Lane, Accelerator)


def main() -> None:
    """Serve requests until the parent is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control, parent = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
    die_with(parent)
    noticed, notice = socket.socketpair()
    noticed.setblocking(False)
    notice.setblocking(False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(notice.fileno())
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    selector.register(noticed, selectors.EVENT_READ)
    with contextlib.suppress(ConnectionError):
        while True:
            for key, _ in selector.select():
                if key.fileobj is noticed:
                    with contextlib.suppress(BlockingIOError):
                        noticed.recv(4096)
                    _tell_ends(control)
                elif not _fork(control, (notice, noticed)):
                    return


def _fork(control: socket.socket, own: tuple[socket.socket, ...]) -> bool:
    """Fork the child of one request; False when the parent is gone."""
    data, descriptors, _, _ = socket.recv_fds(control, REQUEST.size, 1)
    if not data:
        return False
    (kind,) = REQUEST.unpack(data)
    nursery = os.getpid()
    pid = os.fork()
    if pid == 0:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for connection in (control, *own):
            connection.close()
        code = 1
        try:
            code = run_child(_DUTIES[kind], descriptors[0], nursery)
        finally:
            os._exit(code)
    os.close(descriptors[0])
    control.sendall(NEWS.pack(STARTED, pid, 0))
    return True


def _tell_ends(control: socket.socket) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        control.sendall(NEWS.pack(ENDED, pid, os.waitstatus_to_exitcode(status)))


if __name__ == "__main__":
    main()
    os._exit(0)  # there is nothing to tear down, and torch takes its time for it
