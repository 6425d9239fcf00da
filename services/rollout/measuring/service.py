"""Reports, bands and deltas over what the ledger holds."""

import asyncio
from collections.abc import Sequence

from services.rollout.batches.repository import BatchRepository
from services.rollout.measuring.flips import flips
from services.rollout.measuring.report import TaskRows, by_task, cut_band, report, side_of, task_counts
from services.rollout.measuring.row_repository import RowRepository
from services.rollout.measuring.scan import scan
from services.rollout.samplings.records import SamplingRecord
from services.rollout.samplings.repository import Repository
from services.rollout.samplings.tasks import TaskDirectory
from shared.contracts.measuring import Band, BandRequest, Delta, DeltaRequest, DeltaVerdict, Report, Scan
from shared.delta import differences
from shared.errors import Conflict, NotFound
from shared.replication import replicated_delta


class MeasuringService:
    """Reads the ledger; figures are computed in a thread, so that groups go on landing meanwhile."""

    def __init__(
        self, repository: Repository, rows: RowRepository, bands: BatchRepository, tasks: TaskDirectory
    ) -> None:
        self._repository = repository
        self._rows = rows
        self._bands = bands
        self._tasks = tasks

    async def report(self, sampling_id: str) -> Report:
        """The table of one sampling. Raises NotFound, Conflict."""
        record, groups = await self._load(sampling_id)
        return await asyncio.to_thread(report, record, groups)

    async def scan(self, sampling_id: str) -> Scan:
        """Rewarded replies looked through for reward hacking. Raises NotFound, Unavailable, Invalid."""
        record = await self._repository.find(sampling_id)
        if record is None:
            raise NotFound(f"there is no sampling {sampling_id!r}")
        rewarded = await self._rows.rewarded(sampling_id)
        tasks = await self._tasks.some(record.request.domain, sorted({row.task_id for row in rewarded}))
        gold_keys = {task_id: task.provenance.gold_key for task_id, task in tasks.items()}
        findings = await asyncio.to_thread(scan, rewarded, gold_keys)
        return Scan(sampling_id=sampling_id, rewarded=len(rewarded), findings=findings)

    async def cut_band(self, request: BandRequest) -> Band:
        """Cut a band, or answer the one cut under this id. Raises NotFound, Conflict, Invalid."""
        found = await self._bands.find_band(request.band_id)
        if found is None:
            record, groups = await self._load(request.sampling_id)
            previous = await self._bands.newest_band(record.request.domain)
            await self._bands.add_band(request, cut_band(request, record, groups, previous))
            found = await self._bands.find_band(request.band_id)
        if found is None:
            raise NotFound(f"band {request.band_id!r} was removed while it was cut")
        stored, band = found
        if stored != request:
            raise Conflict(f"band {request.band_id!r} exists with another body: {stored}; choose another id")
        return band

    async def band(self, band_id: str) -> Band:
        """A band cut before. Raises NotFound."""
        found = await self._bands.find_band(band_id)
        if found is None:
            raise NotFound(f"there is no band {band_id!r}; `sqlclimb band` cuts one")
        return found[1]

    async def delta(self, request: DeltaRequest) -> Delta:
        """Samplings of two sides, paired by task. Raises NotFound, Conflict."""
        before = [await self._load(await self._sampling_of(name, request.domain)) for name in request.before]
        after = [await self._load(await self._sampling_of(name, request.domain)) for name in request.after]
        records = [record for record, _ in (*before, *after)]
        first, last = records[0], records[-1]
        found = Delta(
            before=[record.sampling_id for record, _ in before],
            after=[record.sampling_id for record, _ in after],
            before_policy=first.request.policy,
            after_policy=last.request.policy,
            verdict=DeltaVerdict.NOT_COMPARABLE,
            sentence="",
            differences=_side_differences(before, after),
            detectable_effect=1.0,
            lines=[],
            gained=[],
            lost=[],
        )
        if found.differences:
            sentence = f"The samplings cannot be compared: {'; '.join(found.differences)}."
            return found.model_copy(update={"sentence": sentence})
        result = await asyncio.to_thread(
            replicated_delta,
            [task_counts(groups) for _, groups in before],
            [task_counts(groups) for _, groups in after],
            first.request.parameters.k,
            request.seed,
        )
        flipped = flips((*result.gained, *result.lost), *([groups for _, groups in side] for side in (before, after)))
        return found.model_copy(update=vars(result) | {"flips": flipped})

    async def _sampling_of(self, name: str, domain: str | None) -> str:
        """The name itself when it is a sampling's id, else the newest finished evaluation of that policy."""
        if await self._repository.find(name) is not None:
            return name
        newest = await self._repository.newest_evaluation(name, domain)
        if newest is None:
            where = "" if domain is None else f" on {domain}"
            raise NotFound(f"there is no sampling {name!r}, and no finished evaluation{where} of a policy of that name")
        return newest

    async def _load(self, sampling_id: str) -> tuple[SamplingRecord, list[TaskRows]]:
        record = await self._repository.find(sampling_id)
        if record is None:
            raise NotFound(f"there is no sampling {sampling_id!r}")
        if record.void_reason is not None:
            raise Conflict(f"sampling {sampling_id!r} was withdrawn: {record.void_reason}")
        tasks, facts = await self._repository.tasks(sampling_id), await self._rows.facts(sampling_id)
        return record, by_task(tasks, facts)


Loaded = tuple[SamplingRecord, Sequence[TaskRows]]


def _side_differences(before: Sequence[Loaded], after: Sequence[Loaded]) -> list[str]:
    """Why the samplings are not comparable: another measurement, or two policies on one side."""
    found: dict[str, None] = {}
    sides = [record for record, _ in (*before, *after)]
    for other in sides[1:]:
        found |= dict.fromkeys(differences(side_of(sides[0]), side_of(other)))
    for label, side in (("before", before), ("after", after)):
        policies = {(record.request.policy, record.policy.adapter_digest[:12]) for record, _ in side}
        if len(policies) > 1:
            names = ", ".join(f"{name} ({digest})" for name, digest in sorted(policies))
            found[f"policy: the samplings {label} are of {names}"] = None
    return list(found)
