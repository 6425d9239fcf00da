"""Reports, bands and deltas over what the ledger holds."""

import asyncio

from services.rollout.batch_repository import BatchRepository
from services.rollout.records import SamplingRecord
from services.rollout.report import TaskRows, by_task, cut_band, report, side_of, task_counts
from services.rollout.repository import Repository
from shared.contracts.rollout import Band, BandRequest, Delta, DeltaRequest, DeltaVerdict, Report
from shared.delta import differences, paired_delta
from shared.errors import Conflict, NotFound


class MeasuringService:
    """Reads the ledger; figures are computed in a thread, so that groups go on landing meanwhile."""

    def __init__(self, repository: Repository, bands: BatchRepository) -> None:
        self._repository = repository
        self._bands = bands

    async def report(self, sampling_id: str) -> Report:
        """The table of one sampling. Raises NotFound, Conflict."""
        record, groups = await self._load(sampling_id)
        return await asyncio.to_thread(report, record, groups)

    async def cut_band(self, request: BandRequest) -> Band:
        """Cut a band, or answer the one cut under this id. Raises NotFound, Conflict, Invalid."""
        found = await self._bands.find_band(request.band_id)
        if found is None:
            record, groups = await self._load(request.sampling_id)
            await self._bands.add_band(request, cut_band(request, record, groups))
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
        """Two samplings, paired by task. Raises NotFound."""
        before, old = await self._load(request.before)
        after, new = await self._load(request.after)
        named = {
            "before": request.before,
            "after": request.after,
            "before_policy": before.request.policy,
            "after_policy": after.request.policy,
        }
        if different := differences(side_of(before), side_of(after)):
            return Delta(
                **named,
                verdict=DeltaVerdict.NOT_COMPARABLE,
                sentence=f"The two samplings cannot be compared: {'; '.join(different)}.",
                differences=different,
                detectable_effect=1.0,
                lines=[],
                gained=[],
                lost=[],
            )
        k = before.request.parameters.k
        result = await asyncio.to_thread(paired_delta, task_counts(old), task_counts(new), k, request.seed)
        return Delta(
            **named,
            verdict=result.verdict,
            sentence=result.sentence,
            differences=[],
            detectable_effect=result.detectable_effect,
            lines=result.lines,
            gained=result.gained,
            lost=result.lost,
        )

    async def _load(self, sampling_id: str) -> tuple[SamplingRecord, list[TaskRows]]:
        record = await self._repository.find(sampling_id)
        if record is None:
            raise NotFound(f"there is no sampling {sampling_id!r}")
        tasks, facts = await self._repository.tasks(sampling_id), await self._repository.facts(sampling_id)
        return record, by_task(tasks, facts)
