"""Trains with checkpoints; at one step of the first attempt one rank dies, stops or raises.

faults.py FOLDER none|kill|stop|raise STEP [TIMEOUT]
"""

import datetime
import hashlib
import os
import signal
import sys
from pathlib import Path

import flambeau as torch
import flambeau.distributed as dist
from flambeau.nn.parallel import DistributedDataParallel

folder, fault, at = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
timeout = float(sys.argv[4]) if len(sys.argv) > 4 else 60
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=timeout))
rank = dist.get_rank()
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Sequential(
    torch.nn.Linear(10, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1)))
optimizer = torch.optim.Adam(model.parameters(), 1e-2)
file, first = folder / "state.pt", 0
if file.exists():
    state = torch.load(file)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    first = state["step"]


def misfortune():
    if fault == "raise":
        raise ValueError("a bad batch")
    os.kill(os.getpid(), {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}[fault])


for step in range(first, 12):
    if rank == 1 and step == at and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" \
            and fault != "none":
        misfortune()
    torch.manual_seed(1000 * step + rank)
    optimizer.zero_grad()
    model(torch.randn(4, 10)).square().mean().backward()
    optimizer.step()
    if step % 3 == 2:
        if rank == 0:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                        "step": step + 1}, folder / "state.part")
            os.replace(folder / "state.part", file)
        dist.barrier()
digest = hashlib.sha256(b"".join(p.detach().numpy().tobytes() for p in model.parameters()))
print(f"rank {rank} from step {first}: {digest.hexdigest()}")
