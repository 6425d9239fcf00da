"""Import, review, check and audit over HTTP, by a real author and verifier."""

import httpx
import psycopg
import pytest

from shared.clients.base import ServiceProblem
from shared.contracts.author import Authoring, AuthoringState
from shared.contracts.review import Action, AuditRequest, AuditSample, Decision, DecisionsRequest
from shared.contracts.tasks import ImportedTask, ImportRequest, PrivilegedTask, Split, TaskSet
from shared.ids import split_of, task_id
from tests.author.conftest import ServiceProcess, awaited, call

GOOD = ImportedTask(
    question="How many customers live in Spain?",
    golds=[
        "SELECT count(*) FROM customers WHERE country = 'Spain'",
        "SELECT count(1) FROM customers WHERE country = 'Spain'",
    ],
)
UNSAID = ImportedTask(
    question="How much freight did we charge in total?", golds=["SELECT sum(freight) FROM orders WHERE channel = 'web'"]
)
ORDERED = ImportedTask(
    question="Which suppliers come from Italy? Names only, please.",
    golds=["SELECT supplier_name FROM suppliers WHERE origin = 'Italy' ORDER BY supplier_name"],
)
STAR = ImportedTask(question="Show all about the Swedish suppliers.", golds=["SELECT * FROM suppliers"])
TASKS = [GOOD, UNSAID, ORDERED, STAR]
UNSAID_ID = task_id(UNSAID.question)


def _import(author: ServiceProcess, name: str, tasks: list[ImportedTask], add: bool = False) -> Authoring:
    request = ImportRequest(authoring_id=name, domain="shop", tasks=tasks, add=add)
    call(author, lambda client: client.start_import(request))
    done = awaited(author, name, lambda found: found.state is not AuthoringState.RUNNING)
    assert done.state is AuthoringState.DONE, done.error
    return done


def _tasks(author: ServiceProcess) -> dict[str, PrivilegedTask]:
    found: TaskSet = call(author, lambda client: client.tasks("shop", privileged=True))
    return {task.question: task for task in found.tasks if isinstance(task, PrivilegedTask)}


def _decide(author: ServiceProcess, decision: Decision) -> str | None:
    """The reason why it was not stored."""
    done = call(author, lambda client: client.decide("shop", DecisionsRequest(decisions=[decision])))
    return done.results[0].reason


def test_an_import_passes_the_gates_and_says_why_the_rest_is_no_task(author: ServiceProcess) -> None:
    done = _import(author, "i-1", TASKS)
    assert done.result is not None
    assert done.result.rejected == {"select_star": 1, "unknown_value": 1}
    rejected = call(author, lambda client: client.rejections("i-1")).rejected
    assert [(one.position, one.reason) for one in rejected] == [(1, "unknown_value"), (3, "select_star")]
    tasks = _tasks(author)
    assert tasks[GOOD.question].privileged.reference == GOOD.golds
    assert tasks[ORDERED.question].provenance.edits == ["order_by_removed"]
    assert "ORDER BY" not in str(tasks[ORDERED.question].privileged.reference)
    assert _import(author, "i-1", TASKS) == done
    with pytest.raises(ServiceProblem, match="seed"):
        _import(author, "i-1", TASKS[:2])


def test_an_import_may_add_to_the_tasks_there_are_and_keeps_the_splits_it_names(author: ServiceProcess) -> None:
    _import(author, "i-1", [GOOD])
    side = Split.TRAIN if split_of(ORDERED.golds[0].split(" ORDER")[0]) is Split.HOLDOUT else Split.HOLDOUT
    _import(author, "i-2", [ORDERED.model_copy(update={"split": side})], add=True)
    tasks = _tasks(author)
    assert set(tasks) == {GOOD.question, ORDERED.question}
    assert tasks[ORDERED.question].split is side
    paraphrase = GOOD.model_copy(update={"question": "Count our Spanish customers, please."})
    again = _import(
        author,
        "i-3",
        [paraphrase.model_copy(update={"golds": ["SELECT count(customer_id) FROM customers WHERE country = 'Spain'"]})],
        add=True,
    )
    assert again.result is not None
    assert sum(again.result.rejected.values()) == 1, "equal results from the same table are one gold"


def test_what_waits_shows_gold_rows_and_reason_and_decisions_survive_a_restart(author: ServiceProcess) -> None:
    _import(author, "i-1", TASKS)
    queue = call(author, lambda client: client.review("shop"))
    assert queue.waiting == 1
    [item] = queue.items
    assert (item.task_id, item.reason, item.acceptable) == (UNSAID_ID, "unknown_value", True)
    assert item.rows is not None
    assert item.rows.row_count == 1
    by = {"decided_by": "ada", "note": "the web shop is all we have"}
    assert _decide(author, Decision(task_id=UNSAID_ID, action=Action.ACCEPT, **by)) is None
    assert _tasks(author)[UNSAID.question].provenance.edits == ["accepted"]
    assert _decide(author, Decision(task_id=task_id(GOOD.question), action=Action.REJECT, decided_by="bob")) is None
    author.stop()
    author.start()
    assert set(_tasks(author)) == {UNSAID.question, ORDERED.question}
    assert call(author, lambda client: client.review("shop")).waiting == 0
    [decided] = call(author, lambda client: client.review("shop", task=UNSAID_ID)).items
    assert decided.decision is not None
    assert (decided.decision.decided_by, decided.decision.note) == ("ada", by["note"])
    _import(author, "i-2", [*TASKS, TASKS[0].model_copy(update={"question": "Number of Spanish customers, please"})])
    assert GOOD.question not in _tasks(author), "a later authoring of the same question keeps the decision"


def test_an_edit_passes_the_gates_before_it_replaces_anything(author: ServiceProcess) -> None:
    _import(author, "i-1", TASKS)
    edit = Decision(task_id=UNSAID_ID, action=Action.EDIT, decided_by="ada", golds=["SELECT * FROM orders"])
    assert _decide(author, edit) == "select_star"
    assert _decide(author, edit.model_copy(update={"golds": ["SELECT max(order_id) FROM orders WHERE freight < 0"]}))
    assert UNSAID.question not in _tasks(author)
    assert _decide(author, edit.model_copy(update={"golds": ["SELECT sum(freight) FROM orders"]})) is None
    edited = _tasks(author)[UNSAID.question]
    assert (edited.privileged.reference, edited.provenance.edits) == ("SELECT sum(freight) FROM orders", ["edited"])
    reworded = Decision(
        task_id=task_id(GOOD.question), action=Action.EDIT, decided_by="ada", question="How many Spaniards buy from us?"
    )
    assert _decide(author, reworded) == "unknown_value"
    assert _decide(author, reworded.model_copy(update={"force": True})) is None
    assert set(_tasks(author)) == {UNSAID.question, ORDERED.question, "How many Spaniards buy from us?"}


def test_what_a_database_measured_no_person_overrules(author: ServiceProcess) -> None:
    _import(author, "i-1", TASKS)
    star = Decision(task_id=task_id(STAR.question), action=Action.ACCEPT, decided_by="ada")
    assert _decide(author, star) == "select_star"
    assert STAR.question not in _tasks(author)
    unknown = Decision(task_id="t2s_000000000000", action=Action.REJECT, decided_by="ada")
    with pytest.raises(ServiceProblem, match="t2s_000000000000"):
        _decide(author, unknown)


def test_an_audit_finds_where_samples_agree_against_the_gold(author: ServiceProcess) -> None:
    _import(author, "i-1", [GOOD, ORDERED])
    name, other = task_id(GOOD.question), task_id(ORDERED.question)
    wrong = [
        "SELECT count(*) FROM customers WHERE city = 'Seville'",
        "select count(city) from customers where city = 'Seville'",
    ]
    samples = [
        AuditSample(task_id=name, sql=sql, matches=False) for sql in [*wrong, wrong[0], "SELECT nothing FROM customers"]
    ]
    samples += [AuditSample(task_id=other, sql=ORDERED.golds[0], matches=True) for _ in range(4)]
    found = call(author, lambda client: client.audit("shop", AuditRequest(samples=samples)))
    assert (found.audited, found.share) == (2, 0.5)
    [suspect] = found.suspects
    assert (suspect.task_id, suspect.samples, suspect.agreeing, suspect.answer) == (name, 4, 3, wrong[0])
    assert suspect.golds == GOOD.golds
    apart = [one.model_copy(update={"sql": f"SELECT {number}"}) for number, one in enumerate(samples[:4])]
    assert call(author, lambda client: client.audit("shop", AuditRequest(samples=apart))).suspects == []


def test_golds_need_their_scope_everywhere(author: ServiceProcess, control_db: str) -> None:
    _import(author, "i-1", TASKS)
    user = {"authorization": f"Bearer {author.token('user')}"}
    decision = {"task_id": UNSAID_ID, "action": "reject", "decided_by": "eve"}
    calls = [
        ("POST", "/v1/imports", {"authoring_id": "i-2", "domain": "shop", "tasks": [GOOD.model_dump(mode="json")]}),
        ("GET", "/v1/domains/shop/review", None),
        ("POST", "/v1/domains/shop/decisions", {"decisions": [decision]}),
        ("POST", "/v1/domains/shop/audits", {"samples": [{"task_id": UNSAID_ID, "sql": "SELECT 1", "matches": False}]}),
    ]
    for method, path, body in calls:
        for headers, status in ((user, 403), ({}, 401)):
            answer = httpx.request(method, author.url + path, headers=headers, json=body)
            assert answer.status_code == status, (path, answer.text)
            assert answer.headers["content-type"] == "application/problem+json"
    for path in ("/v1/authorings/i-1/rejections", "/v1/domains/shop/tasks"):
        answer = httpx.get(author.url + path, headers=user)
        assert answer.status_code == 200
        assert "SELECT" not in answer.text
        assert "privileged" not in answer.text
    assert "SELECT" not in author.log.read_text()
    with psycopg.connect(control_db) as connection:
        assert connection.execute("SELECT count(*) FROM author.decisions").fetchone() == (0,)
