"""Tables of plans: what was decided is found again, until all of it is forgotten together.

Native code knows plans by addresses. Whoever runs it later, as compiled programs do, holds on to
the plans of all tables, so nothing that has words of its own may be remembered anywhere else.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

#: every table of plans
TABLES: list[dict] = []
#: called before plans are forgotten
watchers: list[Callable[[], None]] = []
#: plans that a table has at most. Where values are part of what they are known by, as places of
#: rows are that a program walks through, there would be no end of them: see `keep`.
MOST = 20_000


def new_table() -> dict:
    table: dict = {}
    TABLES.append(table)
    return table


def keep(table: dict, key, plan):
    """Put a plan into a table that values are part of the keys of; it begins anew when it is full.

    A class of tables that see to it themselves would make every lookup slower.
    """
    if len(table) >= MOST:
        _forget(table)
    table[key] = plan
    return plan


def forget_all() -> None:
    """Begin all tables anew."""
    _forget(*TABLES)


def _forget(*tables: dict) -> None:
    for told in watchers:
        told()
    for table in tables:
        table.clear()


def remembered(make: Callable) -> Callable:
    """A function that makes a plan from what can be hashed, each only once."""
    table = new_table()

    @functools.wraps(make)
    def found(*args, **named):
        key = (*args, *named.items())
        plan = table.get(key)
        if plan is None:
            plan = keep(table, key, make(*args, **named))
        return plan

    return found
