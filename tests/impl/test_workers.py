"""Workers end with the process that started them, and their death is an error of one line."""

import os
import signal
import subprocess
import sys
import time

import pytest

from assay.impl.workers import WorkerError, spawn_pool, worker_deaths

PARENT = """
import os, time
from assay.impl.workers import spawn_pool
if __name__ == "__main__":
    pool = spawn_pool(2)
    waiting = [pool.submit(time.sleep, 600) for _ in range(2)]
    print(pool.submit(os.getpid) and [one.pid for one in pool._processes.values()], flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_workers_end_when_their_parent_is_killed(number: signal.Signals, tmp_path: object) -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(one) for one in parent.stdout.readline().strip("[]\n").split(",")]
        time.sleep(1)  # until they work; a kill before that is seen as well
        parent.send_signal(number)
        parent.wait()
        # The end of stdout comes only when no worker holds it any more.
        assert parent.stdout.read() == ""
    assert len(pids) == 2
    assert not any(alive(pid) for pid in pids)


def test_the_death_of_a_worker_is_told_in_one_line() -> None:
    with spawn_pool(1) as pool, pytest.raises(WorkerError) as caught, worker_deaths("pages"):
        pool.submit(os._exit, 3).result()
    assert (caught.value.finding.code, caught.value.finding.where) == ("process.worker", "pages")


def alive(pid: int) -> bool:
    for _ in range(100):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True
