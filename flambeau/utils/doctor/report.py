"""What was found, as text for the person at the terminal."""

from __future__ import annotations

import os
import textwrap

from .mistake import Finding, Mistake

WIDTH = 92


def text(findings: list[Finding]) -> str:
    """All findings, those that were made first coming first."""
    if not findings:
        return "doctor: nothing found"
    count = f"{len(findings)} mistake{'s' * (len(findings) > 1)} found"
    return "\n\n".join([f"doctor: {count}", *map(_told, findings)])


def _told(finding: Finding) -> str:
    mistake, place = finding.mistake, finding.place
    often = f"  ({finding.times} times)" if finding.times > 1 else ""
    lines = [f"{shown(place.file)}:{place.line}: {mistake.title}{often}"]
    if place.code:
        lines.append(f"    {place.code}")
    return "\n".join([*lines, *_filled(finding.what), *_filled(mistake.why)])


def _filled(words: str) -> list[str]:
    return textwrap.wrap(words, WIDTH, initial_indent="  ", subsequent_indent="  ")


def shown(file: str) -> str:
    """A file as seen from here, if it is below."""
    here = os.getcwd() + os.sep
    return file.removeprefix(here)


def catalogue(mistakes: list[type[Mistake]]) -> str:
    """What the doctor knows, each with why it matters."""
    return "\n\n".join("\n".join([m.title, *_filled(m.why)]) for m in mistakes)
