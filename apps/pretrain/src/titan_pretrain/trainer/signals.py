"""Ctrl-C and SIGTERM ask the run to save and stop at the next step; a second one stops at once."""

from __future__ import annotations

import signal
from types import FrameType

from titan_pretrain.cli.messages import note
from titan_pretrain.terminal import show_cursor

__all__ = ["StopRequest"]


class StopRequest:
    """Remembers the signal that asked the run to stop.

    Args:
        speaks: say so on stderr; of several ranks one is enough.
    """

    def __init__(self, *, speaks: bool = True) -> None:
        self.speaks = speaks
        self.signal: int | None = None
        self._previous: dict[int, object] = {}

    def __enter__(self) -> StopRequest:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._previous[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # what signal.signal returned

    def _handle(self, number: int, frame: FrameType | None) -> None:
        del frame
        if self.signal is not None:
            show_cursor()
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        self.signal = number
        if self.speaks:
            name = signal.Signals(number).name
            note(f"\n{name}: stopping after this step; once more stops at once")
