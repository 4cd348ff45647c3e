"""On the path of processes that `flambeau run` starts: `import torch` there finds flambeau too."""

from flambeau.cli import standin

standin.install(__name__)
