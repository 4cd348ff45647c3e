"""Tables of hooks, and the handles that take hooks out of them."""

import itertools
import weakref

from flambeau.assemble import module_changes


class RemovableHandle:
    """Takes a hook away again: by `remove()`, or at the end of a `with` block."""

    _ids = itertools.count()

    def __init__(self, table, *side_tables):
        self.id = next(RemovableHandle._ids)
        self._tables = [weakref.ref(t) for t in (table, *side_tables)]

    def remove(self):
        for reference in self._tables:
            table = reference()
            if table is not None:
                table.pop(self.id, None)
                module_changes[0] += 1

    def __getstate__(self):
        return self.id, [reference() for reference in self._tables]

    def __setstate__(self, state):
        self.id, tables = state
        self._tables = [weakref.ref(HookTable() if t is None else t) for t in tables]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.remove()


class HookTable(dict):
    """Hooks by id, in the order in which they run; a dict that handles can refer to weakly."""

    __slots__ = ("__weakref__",)

    def add(self, hook, *marks, first=False):
        """Insert a hook, and mark its id in further tables."""
        handle = RemovableHandle(self, *marks)
        module_changes[0] += 1
        if first:
            later = dict(self)
            self.clear()
            self[handle.id] = hook
            self.update(later)
        else:
            self[handle.id] = hook
        for mark in marks:
            mark[handle.id] = True
        return handle

    def __reduce__(self):
        return HookTable, (dict(self),)
