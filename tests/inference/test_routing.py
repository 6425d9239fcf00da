"""Which replica a request goes to, by rules alone."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.inference.gateway.engine_metrics import EngineLoad, read_load
from services.inference.gateway.generation_request import read_generation, renamed
from services.inference.gateway.routing import affinity_key, choose, rendezvous
from shared.contracts.inference import GROUP_HEADER
from shared.errors import Invalid

names = st.lists(st.integers(0, 999).map(lambda n: f"http://e{n}:1"), min_size=1, max_size=8, unique=True)
loads = st.dictionaries(st.integers(0, 99).map(str), st.integers(0, 600), min_size=1, max_size=8)


@given(names, st.text())
def test_order_is_of_the_names_alone_and_a_lost_replica_moves_no_other_key(replicas: list[str], key: str) -> None:
    order = rendezvous(key, replicas)
    assert sorted(order) == sorted(replicas)
    assert rendezvous(key, reversed(replicas)) == order
    for lost in replicas:
        assert rendezvous(key, [name for name in replicas if name != lost]) == [n for n in order if n != lost]


def test_keys_spread_evenly() -> None:
    replicas = [f"http://e{number}:1" for number in range(4)]
    first = [rendezvous(f"key {number}", replicas)[0] for number in range(2000)]
    assert all(400 < first.count(name) < 600 for name in replicas)


@given(loads, st.text(), st.integers(1, 64), st.integers(1, 512), st.integers(0, 64))
def test_choice_is_never_over_the_limit_nor_far_busier_than_the_least_busy(
    in_flight: dict[str, int], key: str, sequences: int, limit: int, spill: int
) -> None:
    found = choose(key, in_flight, sequences, limit, spill)
    if found is None:
        assert all(busy > 0 and busy + sequences > limit for busy in in_flight.values())
        return
    assert in_flight[found] == 0 or in_flight[found] + sequences <= limit
    free = [busy for busy in in_flight.values() if busy == 0 or busy + sequences <= limit]
    assert in_flight[found] <= min(free) + spill


@given(names, st.text(), st.integers(0, 100))
def test_equally_busy_replicas_keep_every_prompt_at_home(replicas: list[str], key: str, busy: int) -> None:
    assert choose(key, dict.fromkeys(replicas, busy), 1, 512, 0) == rendezvous(key, replicas)[0]


def test_key_is_the_group_else_the_opening_of_the_conversation() -> None:
    opening = [{"role": "system", "content": "schema"}, {"role": "user", "content": "how many?"}]
    later = [*opening, {"role": "assistant", "content": "3"}, {"role": "user", "content": "and in May?"}]
    other = [opening[0], {"role": "user", "content": "which?"}]
    key = affinity_key({"messages": opening}, None)
    assert affinity_key({"messages": later}, None) == key
    assert affinity_key({"messages": other}, None) != key
    assert affinity_key({"messages": opening}, "g1") == affinity_key({"messages": other}, "g1") != key


@pytest.mark.parametrize(
    ("fields", "sequences"),
    [
        ({"messages": []}, 1),
        ({"messages": [], "n": 8}, 8),
        ({"prompt": "select", "n": 2}, 2),
        ({"prompt": [5, 6, 7], "n": 2}, 2),
        ({"prompt": ["a", "b", "c"], "n": 2}, 6),
        ({"prompt": [[5, 6], [7]]}, 2),
        ({"prompt": [], "n": -3}, 1),
        ({"prompt": "x", "n": "many"}, 1),
    ],
)
def test_sequences_are_prompts_times_replies(fields: dict[str, object], sequences: int) -> None:
    assert read_generation(json.dumps({"model": "base"} | fields).encode(), {}).sequences == sequences


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b'{"model": ""}', b'{"model": 3}', b"[" * 100_000, b"\xff"])
def test_body_that_names_no_model_is_refused(body: bytes) -> None:
    with pytest.raises(Invalid, match="Nothing was generated"):
        read_generation(body, {})


def test_group_header_is_read() -> None:
    body = b'{"model": "base", "prompt": "x", "stream": true}'
    asked = read_generation(body, {GROUP_HEADER: "g7"})
    assert (asked.key, asked.stream) == ("g7", True)


def test_alias_is_replaced_and_the_rest_of_the_body_kept() -> None:
    body = {"model": "sql", "messages": [{"role": "user", "content": "é"}], "n": 2}
    assert json.loads(renamed(json.dumps(body).encode(), "night-s3-01234567")) == body | {"model": "night-s3-01234567"}


def test_load_is_summed_over_an_engines_ranks() -> None:
    text = """# HELP vllm:num_requests_running Number
vllm:num_requests_running{engine="0",model_name="base"} 3.0
vllm:num_requests_running{engine="1",model_name="base"} 4.0
vllm:num_requests_waiting{engine="0",model_name="base"} 2.0
vllm:num_requests_waiting_by_reason{engine="0",model_name="base",reason="capacity"} 2.0
vllm:kv_cache_usage_perc{engine="0",model_name="base"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="base"} 0.75
"""
    assert read_load(text) == EngineLoad(running=7, waiting=2, kv_use=0.75)
    assert read_load("<html>") == EngineLoad()
