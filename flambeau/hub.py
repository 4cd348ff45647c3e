"""Checkpoints from the net and models from folders: torch.hub's names.

Files are kept in a folder and fetched once. A model is made by a function in a folder's
`hubconf.py`; code from the net is never fetched or run, only a folder that is given.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

from flambeau import load as _load_file

__all__ = ["download_url_to_file", "get_dir", "help", "list", "load", "load_state_dict_from_url",
           "set_dir"]

#: what a name ends in when the file's sum is part of it: resnet18-bf5a64f2.pth
HASH_REGEX = re.compile(r"-([a-f0-9]*)\.")
READ_DATA_CHUNK = 128 << 10
_chosen: list[str] = []


def _get_torch_home() -> str:
    """The folder of everything that is kept: TORCH_HOME, or one in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME", "~/.cache")
    return os.path.expanduser(os.environ.get("TORCH_HOME", os.path.join(cache, "torch")))


def get_dir() -> str:
    """The folder where files are kept."""
    return _chosen[-1] if _chosen else os.path.join(_get_torch_home(), "hub")


def set_dir(d) -> None:
    """Keep files in this folder."""
    _chosen[:] = [os.path.expanduser(os.fspath(d))]


def download_url_to_file(url: str, dst: str, hash_prefix: str | None = None,
                         progress: bool = True) -> None:
    """Fetch a file; it is put in place when it is whole and its SHA-256 begins as told."""
    target = Path(dst).expanduser()
    request = urllib.request.Request(url, headers={"User-Agent": "torch.hub"})
    folder = target.parent
    with urllib.request.urlopen(request) as source, tempfile.NamedTemporaryFile(
            dir=folder, delete=False) as part:
        try:
            total = int(source.headers.get("Content-Length") or 0)
            found = _copied(source, part, total if progress else None, target.name)
            if hash_prefix is not None and not found.startswith(hash_prefix):
                raise RuntimeError(f'invalid hash value (expected "{hash_prefix}", got "{found}")')
            part.close()
            os.replace(part.name, target)
        except BaseException:
            part.close()
            Path(part.name).unlink(missing_ok=True)
            raise


def _copied(source, part, total: int | None, name: str) -> str:
    """The SHA-256 of what was copied; a line tells how far it is if a total is given."""
    digest, done = hashlib.sha256(), 0
    while piece := source.read(READ_DATA_CHUNK):
        part.write(piece)
        digest.update(piece)
        done += len(piece)
        if total is not None and sys.stderr.isatty():
            share = f"{done / total:4.0%}" if total else ""
            sys.stderr.write(f"\r{name} {done / 1e6:.1f} MB {share}")
    if total is not None and sys.stderr.isatty():
        sys.stderr.write("\n")
    return digest.hexdigest()


def load_state_dict_from_url(url: str, model_dir=None, map_location=None, progress: bool = True,
                             check_hash: bool = False, file_name: str | None = None,
                             weights_only: bool = False):
    """What a checkpoint at an address holds; the file is fetched if it is not there yet."""
    folder = os.path.join(get_dir(), "checkpoints") if model_dir is None else os.fspath(model_dir)
    os.makedirs(folder, exist_ok=True)
    name = file_name or os.path.basename(urlparse(url).path)
    path = os.path.join(folder, name)
    if not os.path.exists(path):
        sys.stderr.write(f'Downloading: "{url}" to {path}\n')
        found = HASH_REGEX.search(name) if check_hash else None
        download_url_to_file(url, path, found.group(1) if found else None, progress)
    return _load_file(path, map_location=map_location, weights_only=weights_only)


# -- models of a folder ----------------------------------------------------------------------------


def _configuration(folder: str, source: str):
    """The module in a folder's hubconf.py."""
    if source != "local":
        raise ValueError(f'hub: source "{source}" would run code from the net; clone the '
                         'repository and give its folder with source="local"')
    path = os.path.join(folder, "hubconf.py")
    if not os.path.exists(path):
        raise FileNotFoundError(f"hub: there is no hubconf.py in {folder}")
    spec = importlib.util.spec_from_file_location("hubconf", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"hub: {path} cannot be imported")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, folder)
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(folder)
    missing = [name for name in getattr(module, "dependencies", ())
               if importlib.util.find_spec(name) is None]
    if missing:
        raise RuntimeError(f"Missing dependencies: {', '.join(missing)}")
    return module


def _entry(folder: str, source: str, model: str):
    found = getattr(_configuration(folder, source), model, None)
    if not callable(found):
        raise RuntimeError(f"Cannot find callable {model} in hubconf")
    return found


def load(repo_or_dir, model, *args, source="github", trust_repo="check", force_reload=False,
         verbose=True, skip_validation=False, **kwargs):
    """A model made by a function of a folder's hubconf.py (source="local")."""
    return _entry(os.fspath(repo_or_dir), source, model)(*args, **kwargs)


def help(github, model, force_reload=False, skip_validation=False, trust_repo=None,
         source="local"):
    """What such a function says of itself."""
    return _entry(os.fspath(github), source, model).__doc__


def list(github, force_reload=False, skip_validation=False, trust_repo=None, verbose=True,
         source="local"):
    """The names of such functions."""
    module = _configuration(os.fspath(github), source)
    return [name for name, value in vars(module).items()
            if callable(value) and not name.startswith("_")]
