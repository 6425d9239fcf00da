"""The gates that see all proposals at once; ids, splits, the yield."""

import random

from hypothesis import given
from hypothesis import strategies as st

from services.author.assembly import Assembled, Judged, Origin, assemble
from services.author.duplicates import SimilarityIndex, jaccard, words_of
from services.author.gates import Reason
from services.author.teachers.base import Phrasing, Proposal
from shared.contracts.tasks import Archetype, Split
from shared.ids import split_of, task_id
from shared.sql import normalise

ORIGIN = Origin("grammar", "a-1", "shop", "0" * 64)


def _judged(*golds: tuple[str, list[str]]) -> list[Judged]:
    return [
        Judged(n, Proposal(gold, Archetype.FILTER, False, tuple(Phrasing("plain", text) for text in texts)), None)
        for n, (gold, texts) in enumerate(golds)
    ]


def _kept(assembled: Assembled) -> set[str]:
    return {task.question for task in assembled.tasks}


def _golds(split: Split, number: int) -> list[str]:
    found = (f"SELECT a FROM t WHERE b = {n}" for n in range(1000))
    return [gold for gold in found if split_of(normalise(gold)) is split][:number]


def test_one_question_for_two_golds_is_dropped_from_both() -> None:
    shared = "How many birds sat on the wire today?"
    done = assemble(
        _judged(
            ("SELECT a FROM t", [shared, "Name every bird that the log mentions"]),
            ("SELECT b FROM t", [shared.upper(), "List all colors of the painted fences"]),
        ),
        ORIGIN,
    )
    assert _kept(done) == {"Name every bird that the log mentions", "List all colors of the painted fences"}
    assert done.result.rejected == {Reason.AMBIGUOUS: 2}


def test_identical_golds_become_one_and_repeated_questions_go() -> None:
    asked, other = "How many birds sat on the wire today?", "Count birds of the wire, please, for me"
    done = assemble(_judged(("SELECT a FROM t", [asked]), ("select  A from t -- same", [asked, other])), ORIGIN)
    assert {task.privileged.reference for task in done.tasks} == {"SELECT a FROM t"}
    assert _kept(done) == {asked, other}
    assert done.result.golds == 1
    assert done.result.rejected == {Reason.REPEATED: 1}


def test_near_duplicates_go_unless_they_ask_for_the_same_gold() -> None:
    long = "show one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen"
    first, second = _golds(Split.TRAIN, 2)
    done = assemble(_judged((first, [long, f"{long} really"]), (second, [f"{long} indeed"])), ORIGIN)
    assert _kept(done) == {long, f"{long} really"}
    assert done.result.rejected == {Reason.NEAR_DUPLICATE: 1}


def test_across_the_line_train_gives_way_sooner() -> None:
    near = "show one two three four five six seven eight nine ten"  # one word of eleven differs: 0.83
    (train,), (holdout,) = _golds(Split.TRAIN, 1), _golds(Split.HOLDOUT, 1)
    done = assemble(_judged((train, [f"{near} 20"]), (holdout, [f"{near} 30"])), ORIGIN)
    assert _kept(done) == {f"{near} 30"}
    assert done.result.rejected == {Reason.NEAR_HOLDOUT: 1}
    two_train = _golds(Split.TRAIN, 2)
    assert len(assemble(_judged((two_train[0], [f"{near} 20"]), (two_train[1], [f"{near} 30"])), ORIGIN).tasks) == 2


def test_counts_add_up_and_a_rejected_gold_loses_all_its_questions() -> None:
    judged = _judged(
        ("SELECT a FROM t", ["What is every a that t holds?", "short"]),
        ("SELECT b FROM t", ["How many birds sat on the wire?", "Count birds of the wire for me"]),
    )
    judged[1] = Judged(1, judged[1].proposal, Reason.EMPTY)
    result = assemble(judged, ORIGIN).result
    assert (result.proposed, result.kept, result.rejected) == (4, 1, {Reason.EMPTY: 2, Reason.QUESTION_LENGTH: 1})


def test_a_task_carries_its_identities() -> None:
    (task,) = assemble(_judged(("SELECT a FROM t", ["What is every a that t holds?"])), ORIGIN).tasks
    assert task.id == task_id(task.question)
    assert task.split is split_of(normalise("SELECT a FROM t"))
    assert task.provenance.fold in (0, 1)
    assert "SELECT" not in task.model_dump_json(exclude={"privileged"})


def test_the_order_in_which_proposals_land_changes_nothing() -> None:
    judged = _judged(
        *((f"SELECT a FROM t WHERE b > {n}", [f"Rows of table number {n} and {n * n}"]) for n in range(30))
    )
    shuffled = judged.copy()
    random.Random(0).shuffle(shuffled)
    assert assemble(judged, ORIGIN) == assemble(shuffled, ORIGIN)


def test_words_keep_numbers_and_dates_whole() -> None:
    assert words_of("Orders since 2024-05-01, over 12.50 (or 3)?") == {
        *("orders", "since", "2024-05-01", "over", "12.50", "or", "3")
    }


word_sets = st.lists(st.frozensets(st.sampled_from("abcdefghij"), max_size=8), max_size=25)


@given(word_sets, st.sampled_from([0.5, 0.8, 0.9]))
def test_the_index_finds_exactly_what_comparing_all_pairs_finds(sets: list[frozenset[str]], threshold: float) -> None:
    index = SimilarityIndex(threshold, sets)
    for number, words in enumerate(sets):
        expected = [other for other in range(number) if words and jaccard(words, sets[other]) > threshold]
        assert [other for other, _ in index.similar(words)] == expected
        index.add(words)
