"""From judged proposals to a task set: the gates that see all of them at once, ids, splits, the yield. Pure."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from services.author.difficulty import difficulty_of
from services.author.duplicates import ACROSS_SPLIT, WITHIN_SPLIT, Asked, ResultIndex, SimilarityIndex, words_of
from services.author.gates import Reason
from services.author.judged import Judged, Result
from services.author.teachers.base import Phrasing, Proposal
from shared import ids
from shared.contracts.author import AuthoringYield
from shared.contracts.tasks import Difficulty, Privileged, PrivilegedTask, Provenance, Split
from shared.sql import normalise


@dataclass(frozen=True)
class Origin:
    """What every task of one authoring says of where it came from."""

    teacher: str
    authoring_id: str
    domain: str
    domain_digest: str


@dataclass(frozen=True)
class Candidate:
    """One question with its gold."""

    entry: Judged
    phrasing: Phrasing
    split_key: str
    """The gold's normalised parse tree; that of the first of several acceptable ones."""
    split: Split
    golds: tuple[str, ...]
    """As they were first proposed: equal golds are spelled alike in all tasks."""

    @property
    def proposal(self) -> Proposal:
        """What it was proposed as."""
        return self.entry.proposal


@dataclass(frozen=True)
class Rejection:
    """One question that did not become a task."""

    entry: Judged
    phrasing: Phrasing
    reason: Reason


@dataclass(frozen=True)
class Assembled:
    """The result of an authoring."""

    tasks: tuple[PrivilegedTask, ...]
    digest: str
    result: AuthoringYield
    rejections: tuple[Rejection, ...] = ()
    """In the order of the proposals."""
    results: tuple[tuple[Result, ...], ...] = ()
    """Of each task's golds."""


def task_set_digest(tasks: Iterable[PrivilegedTask]) -> str:
    """SHA-256 over the sorted ids and golds."""
    return ids.sha256_hex(json.dumps(sorted([task.id, task.privileged.reference] for task in tasks)))


def assemble(judged: Sequence[Judged], origin: Origin) -> Assembled:
    """Equal judged proposals give equal task sets, whatever order they landed in."""
    judged = sorted(judged, key=lambda entry: entry.position)
    candidates, rejections = _candidates(judged)
    for gate in (_one_gold_a_question, _different_results, _far_apart):
        candidates, reasons = gate(candidates)
        rejections += [Rejection(one.entry, one.phrasing, reason) for one, reason in reasons]
    measured = {gold: difficulty_of(gold) for gold in {candidate.golds[0] for candidate in candidates}}
    tasks = tuple(_task(candidate, measured[candidate.golds[0]], origin) for candidate in candidates)
    proposed = sum(len(entry.proposal.phrasings) for entry in judged)
    return Assembled(
        tasks,
        task_set_digest(tasks),
        _yield(tasks, proposed, Counter(str(rejection.reason) for rejection in rejections)),
        tuple(sorted(rejections, key=lambda rejection: rejection.entry.position)),
        tuple(candidate.entry.results for candidate in candidates),
    )


def _candidates(judged: Sequence[Judged]) -> tuple[list[Candidate], list[Rejection]]:
    """The questions that passed so far."""
    found: list[Candidate] = []
    rejections: list[Rejection] = []
    first: dict[str, tuple[str, ...]] = {}
    for entry in judged:
        golds = (entry.proposal.gold, *entry.proposal.alternatives)
        reasons = entry.reasons
        passed = any(reason is None for reason in reasons)
        key = normalise(entry.proposal.gold) if passed else ""
        split = entry.proposal.split or ids.split_of(key)
        for phrasing, reason in zip(entry.proposal.phrasings, reasons, strict=True):
            if reason is None:
                found.append(Candidate(entry, phrasing, key, split, first.setdefault(key, golds)))
            else:
                rejections.append(Rejection(entry, phrasing, reason))
    return found, rejections


Gated = tuple[list[Candidate], list[tuple[Candidate, Reason]]]
"""Who stays, in order, and who goes."""


def _gated(candidates: Sequence[Candidate], reasons: dict[int, Reason]) -> Gated:
    kept = [candidate for number, candidate in enumerate(candidates) if number not in reasons]
    return kept, [(candidates[number], reason) for number, reason in reasons.items()]


def _holdout_first(candidates: Sequence[Candidate]) -> list[int]:
    """Numbers of the candidates in the order in which they claim their place: across the line, train gives way."""
    return sorted(range(len(candidates)), key=lambda number: (candidates[number].split is Split.TRAIN, number))


def _one_gold_a_question(candidates: Sequence[Candidate]) -> Gated:
    """Drops questions asked of two golds, and repeats of one question for one gold."""
    task_ids = [ids.task_id(candidate.phrasing.question) for candidate in candidates]
    golds: defaultdict[str, set[str]] = defaultdict(set)
    for candidate, task_id in zip(candidates, task_ids, strict=True):
        golds[task_id].add(candidate.split_key)
    seen: set[str] = set()
    reasons: dict[int, Reason] = {}
    for number, task_id in enumerate(task_ids):
        if len(golds[task_id]) > 1:
            reasons[number] = Reason.AMBIGUOUS
        elif task_id in seen:
            reasons[number] = Reason.REPEATED
        seen.add(task_id)
    return _gated(candidates, reasons)


def _different_results(candidates: Sequence[Candidate]) -> Gated:
    """Drops golds that no seed tells apart from another gold, and golds that stand on both sides of the line."""
    golds: dict[tuple[str, Split], list[int]] = {}
    for number in _holdout_first(candidates):
        candidate = candidates[number]
        golds.setdefault((candidate.split_key, candidate.split), []).append(number)
    index = ResultIndex()
    placed: dict[str, Split] = {}
    reasons: dict[int, Reason] = {}
    for (key, split), numbers in golds.items():
        words = frozenset[str]().union(*(words_of(candidates[number].phrasing.question) for number in numbers))
        asked = Asked(key, split, candidates[numbers[0]].entry.results, words)
        alike = {other.split for other in index.alike(asked)}
        if placed.get(key, split) is not split or (alike and split not in alike):
            reasons |= dict.fromkeys(numbers, Reason.NEAR_HOLDOUT)
        elif alike:
            reasons |= dict.fromkeys(numbers, Reason.SAME_RESULT)
        else:
            placed[key] = split
            index.add(asked)
    return _gated(candidates, reasons)


def _far_apart(candidates: Sequence[Candidate]) -> Gated:
    """Drops near-duplicates of other golds' questions: of one split from `WITHIN_SPLIT` on, of holdout questions by
    train ones from `ACROSS_SPLIT` on."""
    words = [words_of(candidate.phrasing.question) for candidate in candidates]
    twins = {split: _Stored(WITHIN_SPLIT, words) for split in Split}
    given_away = _Stored(ACROSS_SPLIT, words)
    reasons: dict[int, Reason] = {}
    for number in _holdout_first(candidates):
        candidate = candidates[number]
        if candidate.split is Split.TRAIN and given_away.holds(words[number], candidate.split_key):
            reasons[number] = Reason.NEAR_HOLDOUT
        elif twins[candidate.split].holds(words[number], candidate.split_key):
            reasons[number] = Reason.NEAR_DUPLICATE
        else:
            twins[candidate.split].add(words[number], candidate.split_key)
            if candidate.split is Split.HOLDOUT:
                given_away.add(words[number], candidate.split_key)
    return _gated(candidates, reasons)


class _Stored:
    """Questions with the golds they are asked for."""

    def __init__(self, threshold: float, corpus: Sequence[frozenset[str]]) -> None:
        self._index = SimilarityIndex(threshold, corpus)
        self._keys: list[str] = []

    def add(self, words: frozenset[str], key: str) -> None:
        self._index.add(words)
        self._keys.append(key)

    def holds(self, words: frozenset[str], key: str) -> bool:
        """A question above the threshold with another gold."""
        return any(self._keys[other] != key for other, _ in self._index.similar(words))


def _task(candidate: Candidate, difficulty: Difficulty, origin: Origin) -> PrivilegedTask:
    gold_key = ids.gold_key(candidate.split_key)
    proposal = candidate.proposal
    golds = list(dict.fromkeys(candidate.golds))
    return PrivilegedTask(
        id=ids.task_id(candidate.phrasing.question),
        question=candidate.phrasing.question,
        archetype=proposal.archetype,
        difficulty=difficulty,
        style=candidate.phrasing.style,
        order_matters=proposal.order_matters,
        split=candidate.split,
        provenance=Provenance(
            teacher=origin.teacher,
            authoring_id=origin.authoring_id,
            domain=origin.domain,
            domain_digest=origin.domain_digest,
            gold_key=gold_key,
            fold=ids.fold_of(gold_key),
            label=proposal.difficulty,
            edits=list(candidate.entry.edits),
        ),
        privileged=Privileged(reference=golds[0] if len(golds) == 1 else golds),
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
        rejected=dict(sorted(rejected.items())),
        matrix={archetype: dict(sorted(row.items())) for archetype, row in sorted(matrix.items())},
    )
