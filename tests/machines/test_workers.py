"""Workers of every executor: errors come as they were raised, a dead one is replaced, nothing listens to the world."""

import os
import signal

import psutil
import pytest

from highway_rl.machines import Died, workers


def listens() -> set[str]:
    """Where the processes that this one began listen."""
    began = psutil.Process().children(recursive=True)
    found = [c.laddr.ip for process in began for c in process.net_connections() if c.status == "LISTEN"]
    return {ip.removeprefix("::ffff:") for ip in found}


@pytest.mark.long
def test_workers():
    with workers("local", 2) as found:
        assert found.count == 2
        first, second = (found.submit(i, os.getpid).result() for i in range(2))
        assert len({first, second, os.getpid()}) == 3
        with pytest.raises(ValueError, match="invalid literal"):
            found.submit(0, int, "x").result()
        with pytest.raises(Died):
            found.submit(1, os._exit, 1).result()
        found.revive(1)
        assert found.submit(1, os.getpid).result() not in (first, second)
        assert found.submit(0, os.getpid).result() == first  # the other has not noticed
        under_way, waiting = found.submit(0, signal.pause), found.submit(0, os.getpid)
    for one in (under_way, waiting):  # who leaves does not wait for work without an end
        with pytest.raises(Died):
            one.result()


@pytest.mark.long
def test_a_cluster_begun_here_listens_on_loopback_only():
    with workers("ray", 1) as found:
        assert found.submit(0, os.getpid).result() != os.getpid()
        with pytest.raises(ValueError, match="invalid literal"):
            found.submit(0, int, "x").result()
        assert listens() == {"127.0.0.1"}


def test_one_worker_here_is_this_process():
    with workers() as found:
        assert found.submit(0, os.getpid).result() == os.getpid()
        with pytest.raises(ValueError, match="invalid literal"):
            found.submit(0, int, "x").result()


@pytest.mark.parametrize("address", ["127.0.0.1:1", "somewhere"])
def test_a_cluster_that_is_not_there(address):
    said = rf"no Ray cluster answers at {address} \(.*\): give"
    with pytest.raises(ValueError, match=said), workers("ray", 1, address=address):
        pass
