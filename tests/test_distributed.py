"""Many processes: each test launches programs of distributed_programs/, whose asserts are the test.

Stores, hosts and exit codes are tested without processes.
"""

import datetime
import importlib.util
import os
import random
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed import launcher
from flambeau.distributed.pmi import node_mapping
from flambeau.utils.data.distributed import DistributedSampler

ROOT = Path(__file__).resolve().parents[1]
PROGRAMS = ROOT / "tests" / "distributed_programs"

needs_mpi = pytest.mark.skipif(importlib.util.find_spec("mpi4py") is None,
                               reason="needs flambeau[distributed]")


def environment(**more):
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def launch(processes, program, *arguments, options=(), code=0, patience=150):
    """Run a program of this test in several processes; what it wrote."""
    command = [sys.executable, "-m", "flambeau.cli", "launch", "-n", str(processes), *options,
               str(PROGRAMS / program), *map(str, arguments)]
    done = subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True,
                          timeout=patience)
    text = done.stdout + done.stderr
    assert done.returncode == code, text
    return text


# -- processes ------------------------------------------------------------------------------------


@needs_mpi
def test_collectives():
    assert launch(3, "collectives.py").count("has seen everything") == 3


@needs_mpi
@pytest.mark.parametrize("processes", [2, 4])
def test_data_parallel_is_one_process_with_the_joined_batch(processes):
    assert launch(processes, "data_parallel.py").count("agrees") == processes


@needs_mpi
def test_grids_of_processes():
    assert launch(4, "mesh.py").count("agrees") == 4


@needs_mpi
def test_sharded_and_loaded_by_another_number_of_processes(tmp_path):
    assert launch(2, "sharded.py", tmp_path, "save").count("agrees") == 2
    assert launch(3, "sharded.py", tmp_path, "load").count("agrees") == 3


def digests(text):
    return set(re.findall(r": ([0-9a-f]{64})", text))


@needs_mpi
def test_a_killed_rank_is_named_and_the_job_resumes_bitwise(tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "broken").mkdir()
    whole = launch(2, "faults.py", tmp_path / "whole", "none", 0)
    step = random.randrange(4, 12)
    text = launch(2, "faults.py", tmp_path / "broken", "kill", step, options=["--max-restarts=1"])
    assert "rank 1 was killed by SIGKILL; starting again" in text
    assert "failed: rank 1 is gone" in text
    assert "from step 0" not in text, f"killed at step {step}"
    assert digests(text) == digests(whole) and len(digests(text)) == 1, f"killed at step {step}"


@needs_mpi
@pytest.mark.parametrize(
    ("fault", "timeout", "words"),
    [
        # Long enough for a step on a machine with other work: a slow rank is no stopped one.
        ("stop", 12, ["timed out after 12 s", "rank 1 has not come: its last was"]),
        ("raise", 60, ["rank 1 is gone: it raised ValueError: a bad batch"]),
    ],
)  # fmt: skip
def test_a_rank_that_hangs_or_raises_is_named(tmp_path, fault, timeout, words):
    grace = 8 if fault == "stop" else 30  # a rank that is stopped does not end by itself
    text = launch(3, "faults.py", tmp_path, fault, 5, timeout, options=[f"--grace={grace}"],
                  code=1)
    assert all(word in text for word in words), text


@needs_mpi
def test_processes_started_by_multiprocessing(tmp_path):
    program = tmp_path / "spawned.py"
    program.write_text(
        "import sys\n"
        "import flambeau as torch, flambeau.distributed as dist\n"
        "def work(rank, path):\n"
        "    dist.init_process_group('gloo', init_method=f'file://{path}', rank=rank,\n"
        "                            world_size=2)\n"
        "    x = torch.ones(3) * (rank + 1)\n"
        "    dist.all_reduce(x)\n"
        "    assert x.tolist() == [3.0] * 3\n"
        "if __name__ == '__main__':\n"
        "    torch.multiprocessing.spawn(work, (sys.argv[1],), nprocs=2)\n"
        "    print('spawned')\n")
    done = subprocess.run([sys.executable, str(program), str(tmp_path / "store")], text=True,
                          env=environment(OMP_NUM_THREADS="1"), capture_output=True, timeout=120)
    assert done.stdout == "spawned\n" and done.returncode == 0, done.stderr


def network_namespaces():
    """Whether two hosts can be made with `ip netns`."""
    if importlib.util.find_spec("mpi4py") is None or not hasattr(os, "geteuid") or os.geteuid():
        return False
    try:
        made = subprocess.run(["ip", "netns", "add", "flambeau-probe"], capture_output=True)
    except FileNotFoundError:
        return False
    subprocess.run(["ip", "netns", "del", "flambeau-probe"], capture_output=True)
    return made.returncode == 0


@pytest.fixture
def two_hosts():
    """Two network namespaces with a bridge between them and this one: (names, address here)."""
    if not network_namespaces():
        pytest.skip("needs root and ip netns")
    names, bridge = ("flambeau-a", "flambeau-b"), "flambr0"
    ip = lambda *words: subprocess.run(["ip", *words], check=True, capture_output=True)
    try:
        ip("link", "add", bridge, "type", "bridge")
        ip("addr", "add", "10.213.7.1/24", "dev", bridge)
        ip("link", "set", bridge, "up")
        for number, name in enumerate(names):
            ip("netns", "add", name)
            ip("link", "add", f"flamb{number}", "type", "veth", "peer", "name", "eth0",
               "netns", name)
            ip("link", "set", f"flamb{number}", "master", bridge, "up")
            inside = ("-n", name)
            ip(*inside, "addr", "add", f"10.213.7.{number + 2}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")
            ip(*inside, "link", "set", "lo", "up")
        yield names, "10.213.7.1"
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no virtual network here: {error.stderr}")
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
        subprocess.run(["ip", "link", "del", bridge], capture_output=True)


def test_two_hosts_train_together_over_tcp(two_hosts, tmp_path):
    names, address = two_hosts
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    options = ["--hosts", ",".join(names), "--master-addr", address,
               "--remote-shell", "ip netns exec"]
    sent = Path("/sys/class/net/flamb0/statistics/tx_bytes")
    before = int(sent.read_text())
    apart = launch(1, "faults.py", tmp_path / "two", "none", 0, options=options)
    assert int(sent.read_text()) - before > 12 * 4 * 705  # bytes: twelve times all gradients
    here = launch(2, "faults.py", tmp_path / "one", "none", 0)
    assert digests(apart) == digests(here) and len(digests(here)) == 1


# -- one process ----------------------------------------------------------------------------------


@pytest.fixture(params=["tcp", "file", "hash", "prefix"])
def store(request, tmp_path):
    makers = {
        "tcp": lambda: dist.TCPStore("127.0.0.1", 0, 1, True),
        "file": lambda: dist.FileStore(str(tmp_path / "store"), 1),
        "hash": dist.HashStore,
        "prefix": lambda: dist.PrefixStore("p", dist.HashStore()),
    }
    return makers[request.param]()


def test_stores(store):
    store.set("a", "one")
    assert store.get("a") == b"one" and store.check(["a"]) and not store.check(["a", "b"])
    assert store.add("n", 2) == 2 and store.add("n", 3) == 5
    assert store.compare_set("a", "two", "three") == b"one"
    assert store.compare_set("a", "one", "three") == b"three" == store.get("a")
    store.append("a", "!")
    assert store.get("a") == b"three!"
    assert store.delete_key("a") and not store.delete_key("a")
    threading.Timer(0.05, store.set, ("late", b"\x00\xff")).start()
    if not isinstance(store, dist.TCPStore):  # one connection answers one question at a time
        store.wait(["late"], datetime.timedelta(seconds=10))
        assert store.get("late") == b"\x00\xff"
    with pytest.raises(dist.DistStoreError, match="never"):
        store.wait(["never"], datetime.timedelta(seconds=0.05))
    store.set_timeout(datetime.timedelta(seconds=0.05))
    with pytest.raises(dist.DistStoreError, match="never"):
        store.get("never")


def test_a_tcp_store_has_many_clients():
    host = dist.TCPStore("127.0.0.1", 0, None, True)
    others = [dist.TCPStore("127.0.0.1", host.port) for _ in range(4)]
    threads = [threading.Thread(target=lambda s=s: [s.add("n", 1) for _ in range(50)])
               for s in others]
    for thread in threads:
        thread.start()
    others[0].set("key", "value")
    assert host.get("key") == b"value"
    for thread in threads:
        thread.join()
    assert host.add("n", 0) == 200
    with pytest.raises(dist.DistNetworkError, match="cannot listen"):
        dist.TCPStore("127.0.0.1", host.port, None, True)


@pytest.mark.parametrize(
    ("hosts", "mapping"),
    [([0, 0, 0], "(vector,(0,1,3))"), ([0, 0, 1, 1], "(vector,(0,1,2),(1,1,2))"),
     ([0, 1, 0], "(vector,(0,1,1),(1,1,1),(0,1,1))")],
)  # fmt: skip
def test_where_ranks_are_is_told_to_mpi(hosts, mapping):
    assert node_mapping(hosts) == mapping


def test_hosts_are_read():
    Host = launcher.Host
    assert launcher.parse_hosts(None, 3) == [Host("", 3)]
    assert launcher.parse_hosts("a,b:4", 2) == [Host("a", 2), Host("b", 4)]
    with pytest.raises(ValueError, match="b:x"):
        launcher.parse_hosts("a,b:x", 2)


def test_ends_are_described():
    assert launcher.describe(-9) == "was killed by SIGKILL"
    assert launcher.describe(3) == "ended with exit code 3"


def test_nothing_works_before_init():
    assert not dist.is_initialized()
    for call in (dist.get_rank, dist.barrier, lambda: dist.all_reduce(torch.ones(1))):
        with pytest.raises(ValueError, match="init_process_group"):
            call()
    with pytest.raises(ValueError, match="Invalid backend"):
        dist.init_process_group("carrier-pigeon")


def test_missing_variables_are_named(monkeypatch):
    for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "PMI_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="RANK expected"):
        dist.init_process_group("gloo")
    with pytest.raises(ValueError, match="rank parameter missing"):
        dist.init_process_group("gloo", init_method="tcp://127.0.0.1:1")


def test_shares_of_a_sampler_make_the_whole():
    shares = [list(DistributedSampler(range(10), 3, rank, shuffle=True)) for rank in range(3)]
    assert [len(share) for share in shares] == [4, 4, 4]
    assert set().union(*shares) == set(range(10))
