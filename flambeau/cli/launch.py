"""Run a script in several processes that train together, here or on several hosts.

  flambeau launch -n 4 train.py            four processes here
  flambeau launch --hosts a:2,b:2 train.py two on each of two hosts, over ssh

Sets torchrun's variables: RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT ...
"""

import argparse
import shlex
import sys

from flambeau.cli.usage import UsageError
from flambeau.distributed import launcher
from flambeau.distributed.runtime import MISSING, is_available

HELP = "run a script in several processes that train together"


def add_arguments(form: argparse.ArgumentParser) -> None:
    form.add_argument("-n", "--nproc-per-node", "--nproc_per_node", type=int, default=1,
                      metavar="N", help="processes on each host (default 1)")
    form.add_argument("--hosts", metavar="A,B:4",
                      help="hosts, each with a number of processes if it is not N")
    form.add_argument("--remote-shell", default="ssh -tt", metavar="COMMAND",
                      help="how a command is run on a host (default: ssh -tt)")
    form.add_argument("--max-restarts", "--max_restarts", type=int, default=0, metavar="K",
                      help="start again up to K times when a rank fails (default 0)")
    form.add_argument("--master-addr", "--master_addr", default="", metavar="ADDRESS",
                      help="under which the hosts reach this machine")
    form.add_argument("--master-port", "--master_port", type=int, default=0, metavar="PORT",
                      help="of the store where ranks meet (default: any free one)")
    form.add_argument("--threads", type=int, default=1, metavar="T",
                      help="threads of each process, unless OMP_NUM_THREADS is set (default 1)")
    form.add_argument("--grace", type=float, default=launcher.GRACE, metavar="SECONDS",
                      help="for the others to stop by themselves when a rank has died")
    form.add_argument("-m", "--module", action="store_true", help="the script is a module's name")
    form.add_argument("--torch", action="store_true",
                      help="a PyTorch program: flambeau takes the place of torch")
    form.add_argument("script")
    form.add_argument("arguments", nargs=argparse.REMAINDER)


def main(options: argparse.Namespace) -> int:
    if not is_available():
        print(f"flambeau launch: {MISSING}", file=sys.stderr)
        return 1
    try:
        hosts = launcher.parse_hosts(options.hosts, options.nproc_per_node)
    except ValueError as error:
        raise UsageError(str(error)) from error
    if any(host.processes < 1 for host in hosts):
        raise UsageError("every host needs at least one process (-n)")
    job = launcher.Job(
        command=command(options), hosts=hosts,
        max_restarts=options.max_restarts, master_addr=options.master_addr,
        master_port=options.master_port, remote_shell=shlex.split(options.remote_shell),
        threads=options.threads, grace=options.grace)  # fmt: skip
    return launcher.run(job)


def command(options: argparse.Namespace) -> list[str]:
    """What each process runs."""
    target = ["-m", options.script] if options.module else [options.script]
    if options.torch:
        target = ["-m", "flambeau.cli", "run", *target]
    return [sys.executable, "-u", *target, *options.arguments]
