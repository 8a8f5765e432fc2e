"""An exchange on its way through the proxy."""

from __future__ import annotations

from dataclasses import dataclass, field

from vtc.exchange import Exchange
from vtc.exchange.stream import Stream
from vtc.proxy.bodies import Passing


@dataclass(slots=True)
class Live:
    """An exchange on its way through, the seconds spent on it, and its reply as it came and as it went."""

    exchange: Exchange
    keep: bool
    seconds: float = 0.0
    answered: bool = False
    """The reply is our own."""
    stream: Stream | None = None
    """What a streamed reply goes through on its way to the client."""
    encoding: str = ""
    """The content-encoding in which a streamed reply comes."""
    killed: bool = False
    """Nothing of the reply may leave."""
    came: Passing = field(init=False)
    went: Passing = field(init=False)

    def __post_init__(self) -> None:
        self.came, self.went = Passing(keep=self.keep), Passing(keep=self.keep)

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the reply that came, and that went."""
        return self.came.size, self.went.size
