"""Opening a page where there is a window to open it in."""

import os
import sys
import webbrowser


def open_page(address: str) -> bool:
    """Whether a browser was opened; never one that would take over the terminal."""
    windows = sys.platform in ("win32", "darwin") or any(
        os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"))
    if not windows or os.environ.get("SSH_CONNECTION"):
        return False
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
