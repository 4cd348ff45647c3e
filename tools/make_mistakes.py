"""Write docs/mistakes.md, of what `flambeau doctor` looks for: from the declarations themselves.

    python tools/make_mistakes.py            writes it
    python tools/make_mistakes.py --check    fails if it is not what they say
"""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from flambeau.utils.doctor import MISTAKES  # noqa: E402
from flambeau.utils.doctor.mistake import BEGINNING  # noqa: E402

PAGE = ROOT / "docs" / "mistakes.md"
HEAD = """\
# Mistakes that raise no error

The five steps of training (clear gradients, forward, loss, backward, step) leave room for mistakes
after which a program runs, and learns little or nothing. `flambeau doctor` runs a program and tells
of those it sees, with the line, what happened there, and why it matters; the program's results stay
what they are.

```
flambeau doctor train.py --lr 3e-4      # as `flambeau run`, with a report at the end
flambeau doctor --strict train.py       # and exit code 1 if anything was found
```

In a notebook, or around a part of a program:

```python
from flambeau.utils.doctor import doctor

with doctor() as found:
    pass  # train here
assert not found.findings
```

What follows is made by `python tools/make_mistakes.py` from the doctor's own declarations, and run
by the tests. The parts of programs begin with:
"""


def page() -> str:
    parts = [HEAD, block(BEGINNING)]
    for mistake in MISTAKES:
        title = mistake.title[0].upper() + mistake.title[1:]
        parts.append(f"\n## {title}\n\n{mistake.why}\n\n{block(mistake.wrong)}\nInstead:\n\n"
                     f"{block(mistake.right)}")
    return "\n".join(parts)


def block(code: str) -> str:
    return f"```python\n{code.strip()}\n```\n"


def main() -> int:
    text = page()
    if "--check" in sys.argv:
        return int(PAGE.read_text(encoding="utf-8") != text)
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
