"""Where a caller's address may lead, however it is written."""

import ipaddress
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from shared.egress import PUBLIC, EgressEntry, EgressRefused, EgressRule, is_public

INSIDE = [
    "127.0.0.1",
    "10.1.2.3",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",  # metadata of most clouds
    "100.100.100.200",  # of Alibaba's
    "168.63.129.16",  # of Azure's
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1%eth0",
    "fd00:ec2::254",
    "ff02::1",
]


def rule(*allowed: str) -> EgressRule:
    return EgressRule(allowed, "SQLCLIMB_THE_SETTING")


@pytest.mark.parametrize("address", INSIDE)
def test_an_address_inside_is_not_public_in_any_notation(address: str) -> None:
    assert not is_public(address)
    if ":" not in address:
        number = int(ipaddress.IPv4Address(address))
        for around in ("::ffff:0:0", "64:ff9b::", "::"):
            assert not is_public(str(ipaddress.IPv6Address(int(ipaddress.IPv6Address(around)) + number)))
        assert not is_public(str(ipaddress.IPv6Address((0x2002 << 112) + (number << 80))))


@pytest.mark.parametrize("address", ["1.1.1.1", "2606:4700:4700::1111", "::ffff:1.1.1.1", "64:ff9b::101:101"])
def test_an_address_of_the_internet_is_public(address: str) -> None:
    assert is_public(address)


@given(st.ip_addresses())
def test_what_python_calls_private_is_never_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    mapped = isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None
    assert mapped or not (is_public(str(address)) and (address.is_private or address.is_link_local))


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/v1",
        "https://127.1/v1",
        "https://2130706433/v1",
        "https://0x7f000001/v1",
        "https://0/v1",
        "https://[::1]:8443/v1",
        "https://[::ffff:169.254.169.254]/v1",
        "https://169.254.169.254/latest",
        "https://localhost/v1",
    ],
)
async def test_https_that_leads_inside_is_refused_and_the_setting_is_named(url: str) -> None:
    with pytest.raises(EgressRefused, match=r"not public.*only what SQLCLIMB_THE_SETTING lists"):
        await rule(PUBLIC).check(url)
    await rule(PUBLIC, url).check(url)


async def test_a_name_that_leads_outside_and_inside_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in ("1.1.1.1", "10.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: places)
    with pytest.raises(EgressRefused, match="not public"):
        await rule(PUBLIC).check("https://models.example/v1")
    places.pop()
    assert await rule(PUBLIC).public_addresses("https://models.example/v1") == ["1.1.1.1"]


async def test_plain_http_and_without_public_all_else_have_to_be_listed() -> None:
    with pytest.raises(EgressRefused, match="not https"):
        await rule(PUBLIC).check("http://1.1.1.1/v1")
    with pytest.raises(EgressRefused, match="is not listed"):
        await rule("https://api.example").check("https://1.1.1.1/v1")


@pytest.mark.parametrize(
    "url", ["https:///v1", "https://h:99999", "https://[::1", "https://a..b", f"https://{'a' * 64}"]
)
async def test_what_names_no_server_is_refused(url: str) -> None:
    with pytest.raises(EgressRefused, match="no address of a server"):
        await rule(PUBLIC, "https://h").check(url)


@pytest.mark.parametrize(
    ("entry", "url", "listed"),
    [
        ("http://vllm", "http://vllm:8000/v1/chat/completions", True),
        ("http://vllm", "HTTP://VLLM/v1", True),
        ("http://vllm", "https://vllm/v1", False),
        ("http://vllm", "http://vllm.evil/v1", False),
        ("http://vllm", "http://evil/http://vllm", False),
        ("http://vllm", "http://vllm@evil/", False),
        ("http://vllm:80", "http://vllm/v1", True),
        ("http://vllm:8000", "http://vllm:8001/v1", False),
        ("http://vllm:8000/v1", "http://vllm:8000/v1/chat/completions", True),
        ("http://vllm:8000/v1/", "http://vllm:8000/v1", True),
        ("http://vllm:8000/v1", "http://vllm:8000/v10", False),
        ("http://vllm:8000/v1", "http://vllm:8000/v1/../admin", False),
        ("http://vllm:8000/v1", "http://vllm:8000/v1/%2e%2e/admin", False),
        ("http://[::1]", "http://[::1]:9/v1", True),
    ],
)
def test_an_entry_covers_its_scheme_host_port_and_whole_steps_of_its_path(entry: str, url: str, listed: bool) -> None:
    assert rule(PUBLIC, entry).lists(url) is listed


@pytest.mark.parametrize("entry", ["", "vllm", "vllm:8000", "ftp://vllm", "http://", "http://a:b", "http://u@h", "*"])
def test_an_entry_that_is_none_is_refused_with_what_it_should_be(entry: str) -> None:
    with pytest.raises(ValidationError, match=r"neither 'public' nor a URL's beginning"):
        TypeAdapter(EgressEntry).validate_python(entry)
