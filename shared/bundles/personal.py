"""Which columns look as if they hold personal data: by their names, by what a sample of their values looks like. Pure.

It errs towards finding: a person who knows better allows the column.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from shared.words import ABBREVIATIONS, singular, split_name


class PersonalKind(StrEnum):
    """What a column seems to hold; decides how it is masked."""

    EMAIL = "e-mail address"
    PHONE = "phone number"
    NAME = "name of a person"
    LOGIN = "login name"
    ADDRESS = "street address"
    POSTAL_CODE = "postal code"
    BIRTH_DATE = "birth date"
    ACCOUNT = "bank account or card"
    OFFICIAL_ID = "official identity number"
    NETWORK = "network address"
    SECRET = "password, key or token"  # noqa: S105
    EMBEDDED = "personal data inside text"  # e-mail addresses, phone numbers and the like in a note or JSON


@dataclass(frozen=True)
class Finding:
    """A column that looks personal."""

    column: str
    """`table.column`."""
    kind: PersonalKind
    by: str
    """`name` or `values`."""


_PEOPLE = """
person people customer client patient employee user member contact student teacher staff author doctor driver guest
passenger candidate applicant tenant salesperson agent subscriber recipient owner physician nurse participant
attendee player actor buyer seller account profile worker volunteer donor parent child visitor resident lead
instructor manager supervisor shopper voter
"""
PERSON_TABLES = frozenset(_PEOPLE.split())
"""Rows of a table whose name ends so are people: its `name` is theirs."""
_PERSON = "|".join(sorted(PERSON_TABLES - {"account", "profile", "lead"}))

_NAMES: tuple[tuple[PersonalKind, str], ...] = (
    (PersonalKind.EMAIL, r"\be ?mail\b"),
    (PersonalKind.SECRET, r"\b(password|passwd|passphrase|secret|token|api key|access key|private key|salt|otp)\b"),
    (PersonalKind.NETWORK, r"\b(ip|ip v4|ip v6|ip addr\w*|remote addr\w*|mac addr\w*|ipaddress)\b"),
    (PersonalKind.PHONE, r"\b(phone|telephone|mobile|cell|fax|msisdn)\b"),
    (PersonalKind.BIRTH_DATE, r"\b(birth|birthday|birthdate|born)\b"),
    (PersonalKind.ACCOUNT, r"\b(iban|card number|credit card|cc number|account number|bank account|routing number)\b"),
    (
        PersonalKind.OFFICIAL_ID,
        r"\b(ssn|social security|passport|national id|identity number|tax id|mrn)\b"
        r"|\b(driver licen[cs]e|licen[cs]e number)\b",
    ),
    (PersonalKind.LOGIN, r"\b(user name|username|login|screen name|nick ?name|handle)\b"),
    (
        PersonalKind.NAME,
        r"\b(first|last|full|given|family|middle|maiden|display|contact|holder) ?name\b"
        rf"|\b(surname|forename|firstname|lastname|fullname)\b|\b({_PERSON}) (full )?name\b",
    ),
    (PersonalKind.POSTAL_CODE, r"\b(zip|zip ?code|postal|post ?code|postal ?code)\b"),
    (PersonalKind.ADDRESS, r"\b(street|address|house number)\b"),
)
_ABOUT_WORDS = """
type status count verified flag id city state country region at on model brand kind is has length
"""
_ABOUT = frozenset(_ABOUT_WORDS.split())
"""A last word that says the column is about such a thing, and is not one: `email_type`, `address_city`."""

_EMAIL = r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
_IPV4 = r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])"
_IBAN = r"\b[A-Z]{2}\d{2}(?: ?[A-Z0-9]{4}){2,7}(?: ?[A-Z0-9]{1,4})?\b"
_PHONE_IN_TEXT = r"(?<![\w+])\+\d[\d ()./-]{7,18}\d(?!\d)"
EMBEDDED = (
    (PersonalKind.EMAIL, re.compile(_EMAIL)),
    (PersonalKind.ACCOUNT, re.compile(_IBAN)),
    (PersonalKind.PHONE, re.compile(_PHONE_IN_TEXT)),
    (PersonalKind.NETWORK, re.compile(_IPV4)),
)
"""What is looked for, and masked, inside longer text."""


def _is_phone(value: str) -> bool:
    digits = sum(character.isdigit() for character in value)
    shaped = re.fullmatch(r"\+?[\d(][\d ()./-]{5,}\d", value) is not None
    grouped = value.startswith(("+", "(")) or len(re.findall(r"\d[ .-]\(?\d", value)) >= 2
    dated = re.match(r"\d{4}-\d{2}-\d{2}|\d{1,2}[./]\d{1,2}[./]\d{2,4}", value) is not None
    return shaped and grouped and 7 <= digits <= 15 and not dated


def _is_card(value: str) -> bool:
    """13 to 19 digits with a right check digit (Luhn, ISO/IEC 7812-1)."""
    digits = re.sub(r"[ -]", "", value)
    if not re.fullmatch(r"\d{13,19}", digits):
        return False
    doubled = [int(digit) * (1 + number % 2) for number, digit in enumerate(reversed(digits))]
    return sum(value - 9 if value > 9 else value for value in doubled) % 10 == 0


def _is_iban(value: str) -> bool:
    """Right by its check digits (ISO 13616: the rearranged number modulo 97 is 1)."""
    packed = value.replace(" ", "").upper()
    if not re.fullmatch(r"[A-Z]{2}\d{2}[A-Z0-9]{11,30}", packed):
        return False
    return int("".join(str(int(character, 36)) for character in packed[4:] + packed[:4])) % 97 == 1


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_interface(value)
    except ValueError:
        return re.fullmatch(r"([0-9A-Fa-f]{2}[:-]){5}[0-9A-Fa-f]{2}", value) is not None
    return "." in value or ":" in value


def _is_secret(value: str) -> bool:
    """A JSON web token, a password hash, or a key of known shape."""
    jwt = re.fullmatch(r"eyJ[\w-]+\.[\w-]+\.[\w-]*", value)
    return (
        jwt is not None
        or re.match(r"\$(2[aby]|argon2\w*|5|6|scrypt)\$|(sk|pk|ghp|xox[bp])[_-]\w{16}", value) is not None
    )


_VALUES: tuple[tuple[PersonalKind, Callable[[str], bool]], ...] = (
    (PersonalKind.EMAIL, lambda value: re.fullmatch(_EMAIL, value) is not None),
    (PersonalKind.ACCOUNT, lambda value: _is_iban(value) or _is_card(value)),
    (PersonalKind.SECRET, _is_secret),
    (PersonalKind.OFFICIAL_ID, lambda value: re.fullmatch(r"\d{3}-\d{2}-\d{4}", value) is not None),
    (PersonalKind.NETWORK, _is_network),
    (PersonalKind.PHONE, _is_phone),
)
LEAST_SHARE = 0.3
"""Share of a column's values that must look so."""
_DATED_TYPES = ("date", "timestamp", "timestamptz")
_NETWORK_TYPES = ("inet", "cidr", "macaddr", "macaddr8")
TEXT_TYPES = ("text", "varchar", "bpchar", "citext", "name", "char")
_STRUCTURED_TYPES = ("json", "jsonb", "hstore", "xml")
_NUMBER_TYPES = ("int4", "int8", "numeric")


def personal_kind(
    table: str, column: str, type_name: str, values: Iterable[str | None]
) -> tuple[PersonalKind, str] | None:
    """What the column seems to hold, and by what it was told (`name`, `values`).

    `type_name` as pg_type has it, an array's with a leading `_`; `values`: a sample as text.
    """
    base = type_name.removeprefix("_")
    said = [value.strip() for value in values if value]
    if base in _NETWORK_TYPES:
        return PersonalKind.NETWORK, "name"
    named = kind_by_name(table, column)
    if named is not None and _may_hold(named, base, said):
        return named, "name"
    if base in TEXT_TYPES and type_name == base and said:
        for kind, is_one in _VALUES:
            if sum(map(is_one, said)) >= max(1.0, LEAST_SHARE * len(said)):
                return kind, "values"
    if base in (*TEXT_TYPES, *_STRUCTURED_TYPES) and any(_holds_embedded(base, value) for value in said):
        return PersonalKind.EMBEDDED, "values"
    return None


def kind_by_name(table: str, column: str) -> PersonalKind | None:
    """What the names say."""
    words = [expanded for word in split_name(column) for expanded in ABBREVIATIONS.get(word, word).split()]
    if not words or words[-1] in _ABOUT or words[0] in ("is", "has"):
        return None
    text = " ".join([*words[:-1], singular(words[-1])])
    for kind, pattern in _NAMES:
        if re.search(pattern, text):
            return kind
    row = singular(split_name(table)[-1]) if split_name(table) else ""
    return PersonalKind.NAME if row in PERSON_TABLES and text in ("name", f"{row} name") else None


def _may_hold(kind: PersonalKind, base: str, values: Sequence[str]) -> bool:
    """Whether a column of this type can hold such a thing."""
    if kind is PersonalKind.BIRTH_DATE:
        return base in _DATED_TYPES or (base in TEXT_TYPES and any(re.match(r"\d{4}-\d{2}-\d{2}", v) for v in values))
    if kind in (PersonalKind.PHONE, PersonalKind.POSTAL_CODE, PersonalKind.ACCOUNT, PersonalKind.OFFICIAL_ID):
        return base in (*TEXT_TYPES, *_NUMBER_TYPES)
    if kind is PersonalKind.SECRET:
        return base in (*TEXT_TYPES, "bytea", "uuid")
    return base in TEXT_TYPES


def _holds_embedded(base: str, value: str) -> bool:
    if base in _STRUCTURED_TYPES and any(kind_by_name("", key) for key in re.findall(r'"([^"]{1,60})"\s*:', value)):
        return True
    return any(pattern.search(value) for _, pattern in EMBEDDED)
