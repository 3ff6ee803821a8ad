"""What a side holds in memory, with all its processes. Linux alone."""

import threading
from pathlib import Path


class Watch(threading.Thread):
    """The most memory that a group of processes held, shared pages counted once."""

    def __init__(self, pid: int, every: float = 0.5):
        super().__init__(daemon=True)
        self.pid, self.every, self.peak = pid, every, 0.0
        self.over = threading.Event()
        self.start()

    def run(self):
        while not self.over.wait(self.every):
            self.peak = max(self.peak, sum(map(held, family(self.pid))))

    def stop(self) -> float:
        self.over.set()
        self.join()
        return self.peak


def family(leader: int) -> list[int]:
    """The processes of a group, and all descendants of those.

    Some outlive their parents, and some have a group of their own.
    """
    parents, found = {}, []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            _, parent, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:  # gone
            continue
        parents[int(path.parent.name)] = int(parent)
        if int(group) == leader:
            found.append(int(path.parent.name))
    for one in found:
        children = (pid for pid, parent in parents.items() if parent == one)
        found += [pid for pid in children if pid not in found]
    return found


def held(pid: int) -> float:
    """MiB, a page that n processes share counting 1 / n."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return sum(int(a.split()[1]) for a in lines if a.startswith("Pss:")) / 1024
