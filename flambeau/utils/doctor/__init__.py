"""A doctor for training programs: watches one run, and tells of mistakes that raise no error.

    from flambeau.utils.doctor import doctor

    with doctor():          # or, of a whole program: flambeau doctor train.py
        train()

    watch      what happens in a program, told to each mistake
    mistake    what a mistake is: when it is seen, why it matters, what to write instead
    gradients, modes, graphs, losses, modules      the mistakes
    report     what was found, as text
"""

from __future__ import annotations

import sys
from typing import Any

from . import gradients, graphs, losses, modes, modules
from .mistake import Finding, Mistake
from .report import text
from .watch import Watch

__all__ = ["MISTAKES", "Finding", "Mistake", "Watch", "doctor", "text"]

#: the modules that declare mistakes, in the order in which a reader meets them
DECLARED = (gradients, modes, graphs, losses, modules)
MISTAKES: list[type[Mistake]] = [
    value for module in DECLARED for value in vars(module).values()
    if isinstance(value, type) and issubclass(value, Mistake) and "title" in vars(value)]


class doctor:
    """Watch what is run in a `with`, and print what was found at its end.

    >>> import flambeau as torch
    >>> with doctor(file=None) as found:
    ...     model = torch.nn.Linear(2, 1)
    ...     answer = model.forward(torch.ones(3, 2))
    >>> [finding.mistake.title for finding in found.findings]
    ['forward() is called, not the module']
    """

    def __init__(self, file: Any = ...):
        self.file, self._watch = file, Watch(MISTAKES)

    @property
    def findings(self) -> list[Finding]:
        """What was found so far; all of it once the `with` has ended."""
        return self._watch.findings

    def __enter__(self) -> doctor:
        self._watch.__enter__()
        return self

    def __exit__(self, *failure: Any) -> None:
        self._watch.__exit__(*failure)
        if self.file is not None:
            print(text(self.findings), file=sys.stderr if self.file is ... else self.file)
