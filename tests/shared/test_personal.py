"""What looks personal, and what becomes of it."""

import datetime
import ipaddress
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.bundles.masking import BIRTH_SHIFT_DAYS, Masker
from shared.bundles.personal import PersonalKind, personal_kind

KINDS = PersonalKind


@pytest.mark.parametrize(
    ("table", "column", "type_name", "values", "kind"),
    [
        ("customers", "email", "text", [], KINDS.EMAIL),
        ("sbCustomer", "sbCustPhone", "varchar", [], KINDS.PHONE),
        ("customers", "customer_name", "text", [], KINDS.NAME),
        ("users", "name", "varchar", [], KINDS.NAME),
        ("patients", "first_name", "varchar", [], KINDS.NAME),
        ("patients", "dob", "date", ["1980-01-01"], KINDS.BIRTH_DATE),
        ("patients", "addr_street", "text", [], KINDS.ADDRESS),
        ("patients", "addr_zip", "varchar", [], KINDS.POSTAL_CODE),
        ("users", "pwd_hash", "text", [], KINDS.SECRET),
        ("sessions", "access_token", "uuid", [], KINDS.SECRET),
        ("visits", "came_from", "inet", [], KINDS.NETWORK),
        ("payers", "ref", "text", ["DE89 3704 0044 0532 0130 00"], KINDS.ACCOUNT),
        ("payers", "ref", "text", ["4111 1111 1111 1111"], KINDS.ACCOUNT),
        ("payers", "x", "text", ["078-05-1120"], KINDS.OFFICIAL_ID),
        ("t", "contact", "text", ["a@b.de", "c@d.fr", "none"], KINDS.EMAIL),
        ("t", "contact", "text", ["+49 30 1234567", "(030) 123 45 67"], KINDS.PHONE),
        ("t", "v", "text", ["10.1.2.3", "2001:db8::1"], KINDS.NETWORK),
        ("t", "note", "text", ["fine", "please write to a@b.de today", "ok", "ok"], KINDS.EMBEDDED),
        ("t", "data", "jsonb", ['{"first_name": "Ann"}'], KINDS.EMBEDDED),
        ("people", "emails", "_text", ["{a@b.de}"], KINDS.EMAIL),
        ("products", "product_name", "text", ["Chair"], None),
        ("products", "name", "text", ["Chair"], None),
        ("patients", "addr_city", "text", ["Rome"], None),
        ("users", "email_verified", "bool", [], None),
        ("users", "phone_type", "text", ["home"], None),
        ("orders", "ordered_on", "date", ["2024-01-01"], None),
        ("t", "day", "text", ["2024-01-01", "2024-02-01"], None),
        ("t", "day", "text", ["01.02.2024"], None),
        ("cars", "vin", "text", ["4T1BF1FK3CU510984"], None),
        ("t", "version", "text", ["1.2.3", "4.10.0"], None),
        ("t", "id", "uuid", ["123e4567-e89b-12d3-a456-426614174000"], None),
        ("geo", "birth_rate", "numeric", ["1.5"], None),
    ],
)
def test_a_column_is_told_by_its_name_or_its_values(
    table: str, column: str, type_name: str, values: list[str], kind: PersonalKind | None
) -> None:
    found = personal_kind(table, column, type_name, values)
    assert (found and found[0]) == kind


texts = st.text(st.characters(categories=["L", "N", "P", "Zs"]), min_size=1, max_size=30)


@given(st.sampled_from([k for k in KINDS if k is not KINDS.EMBEDDED]), st.sets(texts, min_size=2, max_size=30))
def test_equal_values_stay_equal_and_different_ones_different(kind: PersonalKind, values: set[str]) -> None:
    masker = Masker()
    mask = masker.column(kind, "text")
    said = {value: mask(value) for value in values if value.strip()}
    assert len({masked.lower() for masked in said.values()}) == len(said)
    assert {value: mask(value) for value in said} == said
    assert not any(value == masked for value, masked in said.items())


@given(st.from_regex(r"[A-Z][a-z]{3,9} [A-Z][a-z]{3,9}", fullmatch=True))
def test_a_name_keeps_its_length_and_capitals(name: str) -> None:
    masked = Masker().value(KINDS.NAME, name)
    assert [c.isupper() for c in masked] == [c.isupper() for c in name]
    assert len(masked) == len(name)


@given(st.emails())
def test_an_address_becomes_one_that_nobody_has(address: str) -> None:
    masked = Masker().value(KINDS.EMAIL, address)
    assert re.fullmatch(r".+@[a-z]+\.test", masked)


@given(st.dates(datetime.date(1930, 1, 1), datetime.date(2010, 1, 1)))
def test_a_birth_date_moves_by_half_a_year_at_most(born: datetime.date) -> None:
    masked = datetime.date.fromisoformat(Masker().value(KINDS.BIRTH_DATE, born.isoformat()))
    assert 0 < abs((masked - born).days) <= BIRTH_SHIFT_DAYS


@given(st.one_of(st.ip_addresses(v=4), st.ip_addresses(v=6)))
def test_a_network_address_becomes_a_private_one(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    masked = ipaddress.ip_address(Masker().value(KINDS.NETWORK, str(address)))
    assert masked.is_private
    assert masked.version == address.version


def test_numbers_stay_numbers_of_their_type() -> None:
    mask = Masker().column(KINDS.PHONE, "int4")
    values = [str(number) for number in range(2_147_483_600, 2_147_483_640)]
    assert all(int(mask(value)) < 2**31 for value in values)
    card = "4111111111111111"
    assert re.fullmatch(r"4\d{15}", Masker().column(KINDS.ACCOUNT, "int8")(card))
    assert re.fullmatch(r"4\d{15}", Masker().column(KINDS.ACCOUNT, "text")(card))


@pytest.mark.parametrize(
    ("kind", "type_name", "value", "form"),
    [
        (KINDS.NETWORK, "cidr", "10.0.0.0/8", r"10\.0\.0\.0/8"),
        (KINDS.NETWORK, "cidr", "2001:db8::/32", r"fd00:[0-9a-f]{1,4}::/32"),
        (KINDS.NETWORK, "macaddr8", "08:00:2b:01:02:03:04:05", r"02(:[0-9a-f]{2}){7}"),
        (KINDS.NETWORK, "text", "1.2.3.4/eth0", r"\d\.\d\.\d\.\d/\w{3}\d"),
        (KINDS.NETWORK, "_cidr", "{10.0.0.0/8,10.0.0.0/8}", r"\{10\.0\.0\.0/8,10\.0\.0\.0/8\}"),
        (KINDS.SECRET, "bytea", "\\x01", r"\\x[0-9a-f]{2}"),
        (KINDS.SECRET, "bytea", "\\x", r"\\x"),
        (KINDS.BIRTH_DATE, "date", "infinity", "infinity"),
        (KINDS.BIRTH_DATE, "date", "0001-01-01", r"0001-\d\d-\d\d"),
        (KINDS.BIRTH_DATE, "date", "9999-12-31", r"9999-\d\d-\d\d"),
    ],
)
def test_a_masked_value_is_one_that_its_type_takes(kind: PersonalKind, type_name: str, value: str, form: str) -> None:
    assert re.fullmatch(form, Masker().column(kind, type_name)(value))


def test_birth_dates_without_a_gap_stay_dates() -> None:
    mask = Masker().column(KINDS.BIRTH_DATE, "date")
    days = [datetime.date(2015, 1, 1) + datetime.timedelta(days=number) for number in range(1500)]
    for born in days:
        datetime.date.fromisoformat(mask(born.isoformat()))


def test_json_and_arrays_are_masked_inside() -> None:
    masker = Masker()
    text = (
        '{"email": "a@b.de", "size": 3, "note": "call +49 30 1234567 or c@d.fr", "first_name": "Zoe", "color": "red", '
        '"ssn": 78051120, "phone": [491701234567, true, null], "dob": 19800101}'
    )
    masked = json.loads(masker.column(KINDS.EMBEDDED, "jsonb")(text))
    assert (masked["size"], masked["color"]) == (3, "red")
    assert masked["note"].startswith("call +")
    assert not re.search(r"a@b|c@d|Zoe|1234567|78051120|19800101", json.dumps(masked))
    assert masked["phone"][1:] == [True, None]
    assert all(isinstance(number, int) for number in (masked["ssn"], masked["phone"][0], masked["dob"]))
    assert masked["email"] == masker.value(KINDS.EMAIL, "a@b.de")
    array = masker.column(KINDS.EMAIL, "_text")('{a@b.de,NULL,"x y@b.de"}')
    assert re.fullmatch(r'\{\S+@\S+\.test,NULL,"\S \S@\S+\.test"\}', array)


def test_another_run_masks_otherwise() -> None:
    assert Masker().value(KINDS.NAME, "Ann Marie Smith") != Masker().value(KINDS.NAME, "Ann Marie Smith")
