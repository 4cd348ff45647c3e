"""The API reference from docstrings: a hook of mkdocs that fills in lines like `::: flambeau.nn`.

Public namespaces are put together when flambeau is imported, so it asks the modules themselves.
"""

from __future__ import annotations

import importlib
import inspect
import re

LINE = re.compile(r"^::: ([\w.]+)$", re.M)


def on_page_markdown(markdown: str, **_) -> str:
    """Called by mkdocs for each page."""
    return LINE.sub(lambda found: reference(found[1]), markdown)


def reference(name: str) -> str:
    """The public names of a module or class: signature and docstring of each."""
    value = find(name)
    parts = [text_of(value)]
    for each, member in members(value):
        parts += [f"## `{each}{signature(member)}`", text_of(member)]
        if isinstance(member, type) and not isinstance(value, type):
            parts += [f"- `{method}{signature(m)}`: {first_line(m)}"
                      for method, m in vars(member).items()
                      if not method.startswith("_") and callable(m) and first_line(m)]
    return "\n\n".join(part for part in parts if part)


def find(name: str):
    try:
        return importlib.import_module(name)
    except ImportError:
        above, _, last = name.rpartition(".")
        return getattr(find(above), last)


def members(value):
    """(name, what it is) of functions and classes, in alphabetical order."""
    names = getattr(value, "__all__", None) or [n for n in dir(value) if not n.startswith("_")]
    for name in sorted(names, key=str.lower):
        member = getattr(value, name, None)
        if callable(member) and text_of(member):
            yield name, member


def signature(value) -> str:
    """Arguments and their defaults; types are in the stubs, and would hide the names here."""
    try:
        whole = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    bare = [each.replace(annotation=each.empty) for each in whole.parameters.values()]
    return str(whole.replace(parameters=bare, return_annotation=whole.empty))


def text_of(value) -> str:
    """A docstring as markdown: from the first prompt on it is a block of Python."""
    words, prompt, session = (inspect.getdoc(value) or "").partition(">>> ")
    return f"{words.rstrip()}\n\n```python\n{prompt}{session}\n```" if prompt else words


def first_line(value) -> str:
    return (inspect.getdoc(value) or "").split("\n")[0]
