"""Which adapters are never unloaded to make room for another: pinned ones, and those that an alias names. No I/O."""

from collections.abc import Iterable, Mapping

from services.inference.adapters.slots import Slots
from shared.errors import Conflict


class Keeping:
    """Marks the slots of adapters that stay, and leaves one for a run's next adapter."""

    def __init__(self, slots: Slots, max_loras: int) -> None:
        self.aliases: Mapping[str, str] = {}
        """Alias to served name."""
        self._pinned: set[str] = set()
        self._slots = slots
        self._max_loras = max_loras

    def __contains__(self, name: str) -> bool:
        return name in self._pinned or name in self.aliases.values()

    @property
    def loaded(self) -> set[str]:
        """Kept adapters that hold a slot."""
        return {record.name for record in self._slots.records if record.name in self}

    def mark(self) -> None:
        """Tell the slots, after any change."""
        self._slots.keep(self._pinned | set(self.aliases.values()))

    def pin(self, names: Iterable[str]) -> None:
        """They stay."""
        self._pinned |= set(names)
        self.mark()

    def unpin(self, name: str) -> None:
        """It may go."""
        self._pinned.discard(name)
        self.mark()

    def name(self, aliases: Mapping[str, str]) -> None:
        """These are all the aliases now."""
        self.aliases = dict(aliases)
        self.mark()

    def check_room(self, name: str) -> None:
        """Raises Conflict when `name` holds no slot, or no run could publish if it stayed too."""
        if self._slots.get(name) is None:
            raise Conflict(f"{name} is not served now: put it again first")
        if len(self.loaded | {name}) >= self._max_loras:
            raise Conflict(
                f"with {name} all {self._max_loras} adapter slots (SQLCLIMB_MAX_LORAS) would be pinned or named by an "
                "alias, and no run could publish. Nothing was changed; unpin another one"
            )
