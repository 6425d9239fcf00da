"""From judged proposals to a task set: the gates that see all of them at once, ids, splits, the yield. Pure."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.author.difficulty import difficulty_of
from services.author.duplicates import ACROSS_SPLIT, WITHIN_SPLIT, SimilarityIndex, words_of
from services.author.gates import Reason, question_gate
from services.author.teachers.base import Phrasing, Proposal
from shared import ids
from shared.contracts.author import AuthoringYield
from shared.contracts.tasks import Difficulty, Privileged, PrivilegedTask, Provenance, Split
from shared.sql import normalise


@dataclass(frozen=True)
class Judged:
    """A proposal and what the gates that see one gold at a time said."""

    position: int
    proposal: Proposal
    reason: Reason | None


@dataclass(frozen=True)
class Origin:
    """What every task of one authoring says of where it came from."""

    teacher: str
    authoring_id: str
    domain: str
    domain_digest: str


@dataclass(frozen=True)
class Assembled:
    """The result of an authoring."""

    tasks: tuple[PrivilegedTask, ...]
    digest: str
    result: AuthoringYield


@dataclass(frozen=True)
class _Candidate:
    """One question with its gold. The first proposal of a gold stands for it."""

    split_key: str
    split: Split
    proposal: Proposal
    phrasing: Phrasing


def task_set_digest(tasks: Iterable[PrivilegedTask]) -> str:
    """SHA-256 over the sorted ids and golds."""
    return ids.sha256_hex(json.dumps(sorted([task.id, task.privileged.reference] for task in tasks)))


def assemble(judged: Sequence[Judged], origin: Origin) -> Assembled:
    """Equal judged proposals give equal task sets, whatever order they landed in."""
    rejected: Counter[str] = Counter()
    for entry in judged:
        if entry.reason is not None:
            rejected[entry.reason] += len(entry.proposal.phrasings)
    candidates = _candidates(judged)
    for gate in (_lengths, _one_gold_a_question, _far_apart):
        candidates, dropped = gate(candidates)
        rejected += dropped
    measured = {gold: difficulty_of(gold) for gold in {candidate.proposal.gold for candidate in candidates}}
    tasks = tuple(_task(candidate, measured[candidate.proposal.gold], origin) for candidate in candidates)
    proposed = sum(len(entry.proposal.phrasings) for entry in judged)
    return Assembled(tasks, task_set_digest(tasks), _yield(tasks, proposed, rejected))


def _candidates(judged: Sequence[Judged]) -> list[_Candidate]:
    """The questions of the golds that passed; identical golds become one."""
    first: dict[str, Proposal] = {}
    found = []
    for entry in sorted(judged, key=lambda entry: entry.position):
        if entry.reason is None:
            key = normalise(entry.proposal.gold)
            proposal = first.setdefault(key, entry.proposal)
            found += [_Candidate(key, ids.split_of(key), proposal, asked) for asked in entry.proposal.phrasings]
    return found


Gated = tuple[list[_Candidate], Counter[str]]


def _lengths(candidates: Sequence[_Candidate]) -> Gated:
    kept = [candidate for candidate in candidates if question_gate(candidate.phrasing.question) is None]
    return kept, Counter({str(Reason.QUESTION_LENGTH): len(candidates) - len(kept)})


def _one_gold_a_question(candidates: Sequence[_Candidate]) -> Gated:
    """Drops questions asked of two golds, and repeats of one question for one gold."""
    golds: defaultdict[str, set[str]] = defaultdict(set)
    for candidate in candidates:
        golds[ids.task_id(candidate.phrasing.question)].add(candidate.split_key)
    kept: dict[str, _Candidate] = {}
    dropped: Counter[str] = Counter()
    for candidate in candidates:
        task_id = ids.task_id(candidate.phrasing.question)
        if len(golds[task_id]) > 1:
            dropped[Reason.AMBIGUOUS] += 1
        elif task_id in kept:
            dropped[Reason.REPEATED] += 1
        else:
            kept[task_id] = candidate
    return list(kept.values()), dropped


def _far_apart(candidates: Sequence[_Candidate]) -> Gated:
    """Drops near-duplicates of other golds' questions. Holdout goes first: across the line, train gives way."""
    words = [words_of(candidate.phrasing.question) for candidate in candidates]
    index = SimilarityIndex(min(WITHIN_SPLIT, ACROSS_SPLIT), words)
    stored: list[_Candidate] = []
    dropped: Counter[str] = Counter()
    survivors: set[int] = set()
    order = sorted(range(len(candidates)), key=lambda number: (candidates[number].split is Split.TRAIN, number))
    for number in order:
        candidate, reason = candidates[number], None
        for other, similarity in index.similar(words[number]):
            if stored[other].split_key == candidate.split_key:
                continue
            if stored[other].split is not candidate.split:
                reason = Reason.NEAR_HOLDOUT
                break
            if similarity > WITHIN_SPLIT:
                reason = Reason.NEAR_DUPLICATE
                break
        if reason is None:
            index.add(words[number])
            stored.append(candidate)
            survivors.add(number)
        else:
            dropped[reason] += 1
    return [candidate for number, candidate in enumerate(candidates) if number in survivors], dropped


def _task(candidate: _Candidate, difficulty: Difficulty, origin: Origin) -> PrivilegedTask:
    gold_key = ids.gold_key(candidate.split_key)
    return PrivilegedTask(
        id=ids.task_id(candidate.phrasing.question),
        question=candidate.phrasing.question,
        archetype=candidate.proposal.archetype,
        difficulty=difficulty,
        style=candidate.phrasing.style,
        order_matters=candidate.proposal.order_matters,
        split=candidate.split,
        provenance=Provenance(
            teacher=origin.teacher,
            authoring_id=origin.authoring_id,
            domain=origin.domain,
            domain_digest=origin.domain_digest,
            gold_key=gold_key,
            fold=ids.fold_of(gold_key),
        ),
        privileged=Privileged(reference=candidate.proposal.gold),
    )


def _yield(tasks: Sequence[PrivilegedTask], proposed: int, rejected: Counter[str]) -> AuthoringYield:
    holdout = [task for task in tasks if task.split is Split.HOLDOUT]
    matrix: dict[str, dict[str, int]] = {}
    for task in tasks:
        row = matrix.setdefault(task.archetype, {})
        row[task.difficulty] = row.get(task.difficulty, 0) + 1
    return AuthoringYield(
        proposed=proposed,
        kept=len(tasks),
        golds=len({task.provenance.gold_key for task in tasks}),
        holdout_tasks=len(holdout),
        holdout_golds=len({task.provenance.gold_key for task in holdout}),
        rejected={str(reason): number for reason, number in sorted(rejected.items()) if number},
        matrix={archetype: dict(sorted(row.items())) for archetype, row in sorted(matrix.items())},
    )
