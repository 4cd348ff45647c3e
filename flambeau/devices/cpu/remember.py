"""Tables of plans: what was decided is found again, until all of it is forgotten together.

Native code knows plans by addresses. Whoever runs it later, as compiled programs do, holds on to
the plans of all tables, so nothing that has words of its own may be remembered anywhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

#: every table of plans
TABLES: list[dict] = []


def new_table() -> dict:
    table: dict = {}
    TABLES.append(table)
    return table


def remembered(make: Callable) -> Callable:
    """A function that makes a plan from what can be hashed, each only once."""
    table = new_table()

    @functools.wraps(make)
    def found(*args, **named):
        key = (*args, *named.items())
        plan = table.get(key)
        if plan is None:
            plan = table[key] = make(*args, **named)
        return plan

    return found
