"""The gates that see all proposals at once; ids, splits, the yield."""

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.author.assembly import Assembled, Origin, assemble
from services.author.duplicates import ENOUGH_CELLS, SimilarityIndex, jaccard, words_of
from services.author.gates import Reason
from services.author.judged import Judged, Result
from services.author.teachers.base import Phrasing, Proposal
from shared.contracts.tasks import Archetype, Difficulty, Split
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
        ("SELECT a FROM t", ["What is every a that t holds?", "Name what t holds of a"]),
        ("SELECT b FROM t", ["How many birds sat on the wire?", "Count birds of the wire for me"]),
    )
    judged[0] = replace(judged[0], phrasing_reasons=(None, Reason.UNKNOWN_VALUE))
    judged[1] = replace(judged[1], reason=Reason.EMPTY)
    done = assemble(judged, ORIGIN)
    result = done.result
    assert (result.proposed, result.kept, result.rejected) == (4, 1, {Reason.EMPTY: 2, Reason.UNKNOWN_VALUE: 1})
    assert [(one.phrasing.question, one.reason) for one in done.rejections] == [
        ("Name what t holds of a", Reason.UNKNOWN_VALUE),
        ("How many birds sat on the wire?", Reason.EMPTY),
        ("Count birds of the wire for me", Reason.EMPTY),
    ]


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


def _result(signature: str, cells: int = 3, tables: str = "t", values: str = "v") -> tuple[Result, ...]:
    return (Result(signature, cells, tables, values),)


ONE, OTHER = "How many birds sat on the wire today?", "Count what the log knows of feathered animals"


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        (_result("s"), _result("s"), True),  # the same tables and constants
        (_result("s"), _result("s", values="w"), False),  # a count of 3 meets another count of 3
        (_result("s", ENOUGH_CELLS), _result("s", ENOUGH_CELLS, "u", "w"), True),  # too many values for chance
        (_result("s"), _result("r"), False),
        (_result("s"), (*_result("r"), *_result("s")), True),  # one of several acceptable golds
        ((), (), False),
    ],
)
def test_golds_that_no_seed_tells_apart_are_one(
    first: tuple[Result, ...], second: tuple[Result, ...], same: bool
) -> None:
    one, other = _judged(*((gold, [text]) for gold, text in zip(_golds(Split.TRAIN, 2), (ONE, OTHER), strict=True)))
    done = assemble([replace(one, results=first), replace(other, results=second)], ORIGIN)
    assert _kept(done) == ({ONE} if same else {ONE, OTHER})
    assert done.result.rejected == ({Reason.SAME_RESULT: 1} if same else {})


def test_across_the_line_the_train_gold_of_two_alike_goes_whichever_came_first() -> None:
    (train,), (holdout,) = _golds(Split.TRAIN, 1), _golds(Split.HOLDOUT, 1)
    judged = [replace(entry, results=_result("s")) for entry in _judged((train, [ONE]), (holdout, [OTHER]))]
    done = assemble(judged, ORIGIN)
    assert _kept(done) == {OTHER}
    assert done.result.rejected == {Reason.NEAR_HOLDOUT: 1}


def test_similar_words_and_equal_results_from_the_same_tables_are_one_gold() -> None:
    near = "How many of the birds sat there on the wire at noon?"
    golds = _golds(Split.TRAIN, 2)
    judged = _judged((golds[0], [ONE]), (golds[1], [near]))
    judged = [replace(entry, results=_result("s", values=str(number))) for number, entry in enumerate(judged)]
    assert _kept(assemble(judged, ORIGIN)) == {ONE}


def test_an_imported_task_keeps_its_split_and_one_gold_stands_on_one_side() -> None:
    (gold,) = _golds(Split.TRAIN, 1)
    first, second = _judged((gold, [ONE]), (gold, [OTHER]))
    first = replace(first, proposal=replace(first.proposal, split=Split.TRAIN))
    second = replace(second, proposal=replace(second.proposal, split=Split.HOLDOUT))
    done = assemble([first, second], ORIGIN)
    assert [(task.question, task.split) for task in done.tasks] == [(OTHER, Split.HOLDOUT)]
    assert done.result.rejected == {Reason.NEAR_HOLDOUT: 1}


def test_several_acceptable_golds_become_a_list_and_the_label_stays_beside_the_measure() -> None:
    (entry,) = _judged(("SELECT a FROM t", [ONE]))
    proposal = replace(entry.proposal, alternatives=("SELECT b FROM t",), difficulty=Difficulty.HARD)
    (task,) = assemble([replace(entry, proposal=proposal, edits=("order_by_removed",))], ORIGIN).tasks
    assert task.privileged.reference == ["SELECT a FROM t", "SELECT b FROM t"]
    assert (task.difficulty, task.provenance.label) == (Difficulty.EASY, Difficulty.HARD)
    assert task.provenance.edits == ["order_by_removed"]


word_sets = st.lists(st.frozensets(st.sampled_from("abcdefghij"), max_size=8), max_size=25)


@given(word_sets, st.sampled_from([0.5, 0.8, 0.9]))
def test_the_index_finds_exactly_what_comparing_all_pairs_finds(sets: list[frozenset[str]], threshold: float) -> None:
    index = SimilarityIndex(threshold, sets)
    for number, words in enumerate(sets):
        expected = [other for other in range(number) if words and jaccard(words, sets[other]) > threshold]
        assert [other for other, _ in index.similar(words)] == expected
        index.add(words)
