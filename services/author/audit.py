"""Suspect golds: tasks on which a strong policy agrees with itself and not with the gold.

Samples are clustered by what they return, in the verifier: first by equal signatures, then every cluster against the
largest by its verdict, so that another order of columns or a rounding makes no other answer.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from services.author.grounds import Grounds
from shared.contracts.review import AuditRequest, AuditSample, Suspect
from shared.contracts.tasks import PrivilegedTask
from shared.contracts.verifier import ExecutedStatement, Status, VerifyItem


@dataclass(frozen=True)
class Group:
    """The samples of one task that hold SQL."""

    task: PrivilegedTask
    samples: tuple[AuditSample, ...]


@dataclass(frozen=True)
class Cluster:
    """Samples that return the same on every seed."""

    answer: str
    """The statement most of them gave."""
    samples: int


def groups_of(request: AuditRequest, tasks: Mapping[str, PrivilegedTask]) -> list[Group]:
    """Tasks with enough samples, of those that the domain has now; in the order of the samples."""
    by_task: defaultdict[str, list[AuditSample]] = defaultdict(list)
    for sample in request.samples:
        by_task[sample.task_id].append(sample)
    return [
        Group(tasks[name], tuple(samples))
        for name, samples in by_task.items()
        if name in tasks and len(samples) >= request.minimum_samples
    ]


def may_be_suspect(group: Group, agreement: float) -> bool:
    """Whether enough of its samples miss the gold for them to agree against it."""
    missed = sum(not sample.matches for sample in group.samples)
    return missed >= agreement * len(group.samples)


def clusters_of(group: Group, ran: Mapping[str, ExecutedStatement]) -> list[Cluster]:
    """Its samples that miss the gold and run on every seed, by equal results; the largest first."""
    by_result: defaultdict[tuple[str, ...], Counter[str]] = defaultdict(Counter)
    for sample in group.samples:
        runs = ran[sample.sql].executions
        if not sample.matches and runs and all(run.error is None for run in runs):
            by_result[tuple(run.signature for run in runs)][sample.sql] += 1
    clusters = [Cluster(counts.most_common(1)[0][0], counts.total()) for counts in by_result.values()]
    return sorted(clusters, key=lambda cluster: -cluster.samples)


async def suspects(grounds: Grounds, groups: Sequence[Group], agreement: float) -> list[Suspect]:
    """Most agreed first. Raises ServiceProblem, ServiceUnreachable."""
    likely = [group for group in groups if may_be_suspect(group, agreement)]
    texts = sorted({sample.sql for group in likely for sample in group.samples if not sample.matches})
    ran = dict(zip(texts, await grounds.execute(texts, repeat=1), strict=True))
    found: list[Suspect] = []
    for group in likely:
        clusters = clusters_of(group, ran)
        if not clusters:
            continue
        agreeing = await _agreeing(grounds, group.task, clusters)
        if agreeing >= agreement * len(group.samples):
            found.append(_suspect(group, clusters[0], agreeing))
    return sorted(found, key=lambda suspect: -suspect.share)


async def _agreeing(grounds: Grounds, task: PrivilegedTask, clusters: Sequence[Cluster]) -> int:
    """Samples that say what the largest cluster says."""
    first, *others = clusters
    items = [VerifyItem(sql=one.answer, gold=first.answer, order_matters=task.order_matters) for one in others]
    verdicts = await grounds.verify(items)
    same = (one.samples for one, verdict in zip(others, verdicts, strict=True) if verdict.status is Status.MATCH)
    return first.samples + sum(same)


def _suspect(group: Group, largest: Cluster, agreeing: int) -> Suspect:
    return Suspect(
        task_id=group.task.id,
        question=group.task.question,
        golds=group.task.privileged.golds,
        answer=largest.answer,
        samples=len(group.samples),
        agreeing=agreeing,
        share=agreeing / len(group.samples),
    )
