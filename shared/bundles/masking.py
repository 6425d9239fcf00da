"""Masks personal values: other values of the same form, the same for the same value, never two alike.

Pseudonyms from HMAC-SHA256 under a salt that lives as long as the object and is stored nowhere: who has the masked
values and this code cannot test guesses.
"""

import datetime
import hmac
import ipaddress
import itertools
import json
import re
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

from shared.bundles.personal import EMBEDDED, PersonalKind, kind_by_name

_VOWELS: Final = "aeiou"
_CONSONANTS: Final = "bcdfghjklmnpqrstvwz"
_ATTEMPTS: Final = 200
"""Pseudonyms tried before a value's form has too few; then digits are appended."""
BIRTH_SHIFT_DAYS: Final = 180
"""A birth date moves by at most so much, either way: ages stay about right."""
_ELEMENT: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[^,{}"]+')
_LARGEST: Final = {"int2": 2**15, "int4": 2**31, "int8": 2**63}
_FIXED: Final = ("date", "timestamp", "timestamptz", "inet", "cidr", "macaddr", "macaddr8", "uuid", "bytea")
"""Types whose values no digit can be appended to: two alike, or one as it was, rather than rows that do not load."""


class Masker:
    """One run's mapping of values to pseudonyms."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(32)
        self._given: dict[tuple[PersonalKind, str], str] = {}
        self._taken: dict[PersonalKind, set[str]] = {}

    def column(self, kind: PersonalKind, type_name: str) -> Callable[[str], str]:
        """How values of a column are masked. `type_name` as pg_type has it; an array's elements are masked each."""
        if type_name.startswith("_"):
            element = type_name.removeprefix("_")
            return lambda value: _ELEMENT.sub(lambda found: self._element(kind, found[0], element), value)
        if type_name in ("json", "jsonb"):
            return self._json
        if kind is PersonalKind.EMBEDDED:
            return self._embedded
        return lambda value: self.value(kind, value, type_name)

    def value(self, kind: PersonalKind, value: str, type_name: str = "text") -> str:
        """The pseudonym of one value, which the type takes."""
        if not value.strip():
            return value
        if (kind, value) in self._given:
            return self._given[kind, value]
        limit = _LARGEST.get(type_name)
        taken = self._taken.setdefault(kind, set())
        for attempt in itertools.count():
            masked = self._pseudonym(kind, value, attempt)
            if attempt >= _ATTEMPTS:
                if type_name in _FIXED:
                    break
                masked += str(attempt)
            fits = limit is None or int(masked) < limit
            if masked != value and masked.lower() not in taken and fits:
                break
        taken.add(masked.lower())
        self._given[kind, value] = masked
        return masked

    def _stream(self, *what: object) -> Iterator[int]:
        """Endless bytes that depend on `what` and the salt."""
        for block in itertools.count():
            message = "\0".join(map(str, (*what, block))).encode()
            yield from hmac.digest(self._salt, message, "sha256")

    def _pseudonym(self, kind: PersonalKind, value: str, attempt: int) -> str:
        stream = self._stream(kind, value, attempt)
        if kind is PersonalKind.EMAIL and "@" in value:
            local, _, domain = value.rpartition("@")
            return f"{_scrambled(local, stream)}@{self._domain(domain)}"
        if kind is PersonalKind.NAME and attempt < 2:  # the same first name stays the same first name
            salted = ("word", attempt)
            return re.sub(r"[^\W_]+", lambda w: _scrambled(w[0], self._stream(*salted, w[0].lower())), value)
        if kind is PersonalKind.BIRTH_DATE:
            return _shifted(value, stream)
        if kind is PersonalKind.NETWORK:
            return _network(value, stream)
        if re.fullmatch(r"\\x[0-9a-f]*|(?=.*[a-f])[0-9a-f-]{16,}", value):
            prefix = "\\x" if value.startswith("\\x") else ""
            return prefix + re.sub("[0-9a-f]", lambda _: f"{next(stream) % 16:x}", value.removeprefix("\\x"))
        kept = 2 if kind is PersonalKind.ACCOUNT and value[:2].isalpha() else 0  # an IBAN's country
        kept = kept or int(value[0] in "123456789" and value.isdigit())  # a number keeps its length
        return value[:kept] + _scrambled(value[kept:], stream)

    def _domain(self, domain: str) -> str:
        """As long as the original, below `.test`, which nobody can register (RFC 2606)."""
        name = _scrambled("".join(re.findall("[A-Za-z]", domain)) or "mail", self._stream("domain", domain.lower()))
        return f"{name.lower()[: max(len(domain) - 5, 1)]}.test"

    def _element(self, kind: PersonalKind, element: str, type_name: str) -> str:
        if element == "NULL":
            return element
        quote = '"' if element.startswith('"') else ""
        bare = element.strip('"')
        embedded = kind is PersonalKind.EMBEDDED
        return quote + (self._embedded(bare) if embedded else self.value(kind, bare, type_name)) + quote

    def _embedded(self, text: str) -> str:
        for kind, pattern in EMBEDDED:
            text = pattern.sub(lambda found, kind=kind: self.value(kind, found[0]), text)  # type: ignore[misc]
        return text

    def _json(self, text: str) -> str:
        return json.dumps(self._leaves(json.loads(text), None), ensure_ascii=False)

    def _leaves(self, node: Any, kind: PersonalKind | None) -> Any:
        if isinstance(node, dict):
            return {key: self._leaves(value, kind_by_name("", key) or kind) for key, value in node.items()}
        if isinstance(node, list):
            return [self._leaves(value, kind) for value in node]
        if isinstance(node, str):
            return self._embedded(node) if kind is None else self.value(kind, node)
        if isinstance(node, int) and not isinstance(node, bool) and kind is not None:
            return int(re.sub(r"\D", "", self.value(kind, str(node))))
        return node


def _scrambled(text: str, stream: Iterator[int]) -> str:
    """Letters to letters (vowels to vowels, case kept), digits to digits, all else as it is."""
    return "".join(_other(character, stream) for character in text)


def _other(character: str, stream: Iterator[int]) -> str:
    if character.isdigit():
        return str(next(stream) % 10)
    if not character.isalpha():
        return character
    letters = _VOWELS if character.lower() in _VOWELS else _CONSONANTS
    other = letters[next(stream) % len(letters)]
    return other.upper() if character.isupper() else other


def _shifted(value: str, stream: Iterator[int]) -> str:
    """The date at the start of the text, some days off; text that begins with none is scrambled."""
    if value.endswith("infinity"):
        return value
    try:
        date = datetime.date.fromisoformat(value[:10])
    except ValueError:
        return _scrambled(value, stream)
    days = (next(stream) * 256 + next(stream)) % (2 * BIRTH_SHIFT_DAYS + 1) - BIRTH_SHIFT_DAYS
    shift = datetime.timedelta(days=days)
    try:
        moved = date + shift
    except OverflowError:  # the first or last date there is, as some write "unknown"
        moved = date - shift
    return moved.isoformat() + value[10:]


def _network(value: str, stream: Iterator[int]) -> str:
    """A private address of the same family, or a private network of the same size."""
    if re.fullmatch(r"([0-9A-Fa-f]{2}[:-]){5,7}[0-9A-Fa-f]{2}", value):
        return "02" + re.sub("[0-9A-Fa-f]", lambda _: f"{next(stream) % 16:x}", value[2:])
    try:
        version = ipaddress.ip_interface(value).version
    except ValueError:
        return _scrambled(value, stream)
    if version == 4:
        masked = f"10.{next(stream)}.{next(stream)}.{next(stream)}"
    else:
        masked = "fd00:" + ":".join(f"{next(stream):02x}{next(stream):02x}" for _ in range(7))
    _, slash, bits = value.partition("/")
    return str(ipaddress.ip_network(f"{masked}/{bits}", strict=False)) if slash else masked
