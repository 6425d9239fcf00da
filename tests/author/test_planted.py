"""The planted set through all gates, golds on a real verifier: every bad task gets its reason, no clean one any."""

from services.author.assembly import Origin, assemble
from services.author.grounds import Grounds
from services.author.judging import judge
from tests.author.planted import planted

ORIGIN = Origin("import", "a-1", "shop", "0" * 64)


async def test_every_planted_bad_task_gets_its_reason_and_no_clean_one_is_rejected(grounds: Grounds) -> None:
    tasks = planted()
    clean, bad = [one for one in tasks if one.reason is None], [one for one in tasks if one.reason is not None]
    assert len(clean) >= 100
    assert len(bad) >= 40
    judged = await judge(grounds, [one.proposal for one in tasks])
    assembled = assemble(judged, ORIGIN)
    found = {rejection.entry.position: rejection.reason for rejection in assembled.rejections}
    wrong = [
        (one.proposal.phrasings[0].question, one.reason, found.get(position))
        for position, one in enumerate(tasks)
        if found.get(position) is not one.reason
    ]
    assert wrong == []
    assert len(assembled.tasks) == len(clean)
