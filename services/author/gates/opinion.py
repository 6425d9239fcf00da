"""The second opinion: independent attempts at a question against its gold. Pure; `second_opinion` does the calls."""

from collections.abc import Sequence

from services.author.gates.reasons import Reason
from shared.contracts.verifier import Status


def opinion_gate(attempts: Sequence[Status]) -> Reason | None:
    """Some attempt matches the gold: a wrong gold, or a question that reads otherwise, is hardly hit by chance.

    More attempts forgive a weak teacher's slips; they do not make a wrong gold more likely to pass. A refusal or an
    empty reply counts as one that disagrees. Without attempts there is no opinion.
    """
    return None if not attempts or Status.MATCH in attempts else Reason.SECOND_OPINION
