"""Checkpoints from the net, under the names they had before there was a hub."""

from flambeau.hub import load_state_dict_from_url

try:
    from tqdm.auto import tqdm
except ImportError:
    class tqdm:  # type: ignore[no-redef]
        """What is used of tqdm's bar where that package is not installed: nothing is shown."""

        def __init__(self, iterable=None, total=None, **_options):
            self.iterable, self.total, self.n = iterable, total, 0

        def __iter__(self):
            for each in self.iterable:
                yield each
                self.update()

        def update(self, n=1):
            self.n += n

        def set_description(self, desc=None, refresh=True):
            """Say what is going on: there is nothing to say it on."""

        def close(self):
            """Take the bar away."""

        def __enter__(self):
            return self

        def __exit__(self, *_error):
            self.close()

__all__ = ["load_state_dict_from_url", "load_url", "tqdm"]

load_url = load_state_dict_from_url
