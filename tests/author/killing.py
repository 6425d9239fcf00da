"""`kill -9` of an author at random moments of a paid authoring, and the account of what was lost and paid."""

import random
import time
from collections import Counter
from dataclasses import dataclass

import psycopg

from services.author.teachers.endpoint import Completion, Outcome
from services.author.teachers.model_teacher import items_of
from services.author.teachers.pricing import Usage
from shared.contracts.author import Authoring, AuthoringRequest, AuthoringState
from tests.author.conftest import ServiceProcess, call, finished
from tests.author.model_server import ModelServer

MOST_CHARGES = 24
LONGEST_PAUSE_SECONDS = 0.3
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Account:
    """What the kills did."""

    kills: int
    moments: list[str]
    done: Authoring
    billed: Counter[str]
    """Call to how often the provider charged it."""
    doubts: int
    """Calls of which the author says that they may have been charged twice."""
    unanswered: list[str]
    """Calls charged of which no reply, whole or in part, is stored."""
    unjudged: int
    """Items of stored replies that are no proposals."""
    repeated: int
    """Proposals stored more than once."""

    def charged_twice(self, purpose: str = "") -> int:
        """Charges beyond one a call; of `propose` or `attempt` calls only, where it is said."""
        return sum(charges - 1 for key, charges in self.billed.items() if purpose in key)


def kill_at_random(
    author: ServiceProcess, server: ModelServer, request: AuthoringRequest, kills: int, seed: int
) -> Account:
    """`kills` times: post, kill after some more charges and a pause, both random, start again. Then let it end.

    Raises AssertionError where the authoring was over before the last kill.
    """
    draw, moments = random.Random(seed), []
    for _ in range(kills):
        charges = server.billed.total() + draw.randint(1, MOST_CHARGES)
        call(author, lambda client: client.start(request))
        deadline = time.monotonic() + WAIT_SECONDS
        while server.billed.total() < charges:
            assert time.monotonic() < deadline, f"{server.billed.total()} of {charges} charges"
            time.sleep(0.005)
        time.sleep(draw.uniform(0, LONGEST_PAUSE_SECONDS))
        found = call(author, lambda client: client.authoring(request.authoring_id))
        assert found.state is AuthoringState.RUNNING, f"over before the kill: {found.state} {found.error}"
        author.kill()
        moments.append(f"{found.proposed} proposed, {found.kept} kept, {server.billed.total()} charges")
        author.start()
    done = finished(author, request)
    return _account(author.settings["DB"], request.authoring_id, server, done, moments)


def _account(dsn: str, authoring_id: str, server: ModelServer, done: Authoring, moments: list[str]) -> Account:
    with psycopg.connect(dsn) as connection:
        calls = connection.execute(
            "SELECT call_key, purpose, number, reply, outcome, doubts FROM author.calls WHERE authoring_id = %s",
            (authoring_id,),
        ).fetchall()
        stored = connection.execute(
            "SELECT position, gold FROM author.proposals WHERE authoring_id = %s", (authoring_id,)
        ).fetchall()
    positions = {position for position, _ in stored}
    items = {
        100 * number + place
        for _, purpose, number, reply, outcome, _ in calls
        if purpose == "propose"
        for place in range(len(items_of(Completion(reply, Outcome(outcome), Usage()))))
    }
    golds = Counter(gold for _, gold in stored if gold)
    known = {f"{authoring_id}:{key}" for key, _, _, reply, *_ in calls if reply}
    return Account(
        kills=len(moments),
        moments=moments,
        done=done,
        billed=server.billed,
        doubts=sum(doubts for *_, doubts in calls),
        unanswered=sorted(set(server.billed) - known),
        unjudged=len(items - positions),
        repeated=sum(golds.values()) - len(golds),
    )
