"""Near-duplicates: questions by exact Jaccard similarity of word sets, golds by what they returned. Pure."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations

from services.author.judged import Result
from shared.contracts.tasks import Split

WITHIN_SPLIT = 0.9
"""Word Jaccard above which two questions of one split are one question: one word of twenty differs."""
ACROSS_SPLIT = 0.8
"""Above it a train question gives a holdout question away: one word of twelve differs, say a literal."""

SAME_RESULT_WORDS = 0.35
"""Word Jaccard from which two golds of the same tables with equal results are one."""
SHARED = 3
"""Words by which similar questions are looked up together, at most."""
KEYS = 200
"""Entries of one question in the index, at most: a long one is looked up by fewer words together."""
ENOUGH_CELLS = 24
"""Values over all seeds from which equal results are no chance: below, a count of 3 meets another count of 3."""

_WORD = re.compile(r"[\w.%-]*\w")


def words_of(question: str) -> frozenset[str]:
    """Its words and numbers, lower case."""
    return frozenset(_WORD.findall(question.lower()))


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Shared words over all words; 1 for two empty sets."""
    shared = len(one & other)
    union = len(one) + len(other) - shared
    return shared / union if union else 1.0


class SimilarityIndex:
    """Word sets, searched for those above a threshold.

    Sets as similar as the threshold share several words among the rarest few of each (prefix filtering, as in Wang, Li
    and Feng, "Can we beat the prefix filtering?", SIGMOD 2012), so only sets that do are compared. One shared word
    would not tell much: questions about one schema have a small vocabulary, and its words are in ever more of them.
    `corpus` gives the frequencies; it decides speed, never results.
    """

    def __init__(self, threshold: float, corpus: Sequence[frozenset[str]]) -> None:
        self._threshold = threshold
        frequency = Counter(word for words in corpus for word in words)
        self._rank = {word: rank for rank, word in enumerate(sorted(frequency, key=lambda w: (frequency[w], w)))}
        self._sets: list[frozenset[str]] = []
        self._by_words: defaultdict[tuple[str, ...], list[int]] = defaultdict(list)

    def _overlap(self, words: frozenset[str]) -> int:
        """Words that a set above the threshold shares at least."""
        return math.ceil(self._threshold * len(words))

    def _keys(self, words: frozenset[str], overlap: int, shared: int) -> Iterator[tuple[str, ...]]:
        """What two sets of at least this overlap have one in common of: `shared` of each one's rarest words."""
        ordered = sorted(words, key=lambda word: (self._rank.get(word, -1), word))
        return combinations(ordered[: max(0, len(words) - overlap + shared)], shared)

    def add(self, words: frozenset[str]) -> int:
        """Store a set; returns its number, counted from 0."""
        number, overlap = len(self._sets), self._overlap(words)
        self._sets.append(words)
        fitting = (n for n in range(min(SHARED, overlap), 1, -1) if math.comb(len(words) - overlap + n, n) <= KEYS)
        for key in self._keys(words, overlap, next(fitting, min(1, overlap))):
            self._by_words[key].append(number)
        return number

    def similar(self, words: frozenset[str]) -> Iterator[tuple[int, float]]:
        """Number and similarity of every stored set above the threshold, in the order they were stored."""
        overlap = self._overlap(words)
        keys = (self._keys(words, max(overlap, shared), shared) for shared in range(1, SHARED + 1))
        found = {number for key in chain.from_iterable(keys) for number in self._by_words.get(key, ())}
        shortest, longest = self._threshold * len(words), len(words) / self._threshold
        for number in sorted(found):
            other = self._sets[number]
            similarity = jaccard(words, other) if shortest <= len(other) <= longest else 0.0
            if similarity > self._threshold:
                yield number, similarity


@dataclass(frozen=True)
class Asked:
    """A gold with what it returned and the words it is asked for in."""

    key: str
    """Names the gold."""
    split: Split
    results: tuple[Result, ...]
    """One an acceptable gold."""
    words: frozenset[str]
    """Of all its questions."""


class ResultIndex:
    """Golds, searched for those that mean the same."""

    def __init__(self) -> None:
        self._by_signature: defaultdict[str, list[tuple[Asked, Result]]] = defaultdict(list)

    def add(self, asked: Asked) -> None:
        """Store a gold."""
        for result in asked.results:
            self._by_signature[result.signature].append((asked, result))

    def alike(self, asked: Asked) -> Iterator[Asked]:
        """Every other stored gold that returns the same on every seed, and that no more by chance: many values, or the
        same tables and either the same constants or similar words."""
        for result in asked.results:
            for other, theirs in self._by_signature[result.signature]:
                if other.key != asked.key and _agree(result, theirs, asked.words, other.words):
                    yield other


def _agree(one: Result, other: Result, words: frozenset[str], other_words: frozenset[str]) -> bool:
    if one.cells >= ENOUGH_CELLS:
        return True
    return one.tables == other.tables and (
        one.values == other.values or jaccard(words, other_words) >= SAME_RESULT_WORDS
    )
