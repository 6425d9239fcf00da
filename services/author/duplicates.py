"""Near-duplicate questions of different golds: exact Jaccard similarity of word sets by prefix filtering. Pure."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

WITHIN_SPLIT = 0.9
"""Word Jaccard above which two questions of one split are one question: one word of twenty differs."""
ACROSS_SPLIT = 0.8
"""Above it a train question gives a holdout question away: one word of twelve differs, say a literal."""

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

    Sets as similar as the threshold share a word among the rarest few of each (prefix filtering), so only those that do
    are compared. `corpus` gives the frequencies; it decides speed, never results.
    """

    def __init__(self, threshold: float, corpus: Sequence[frozenset[str]]) -> None:
        self._threshold = threshold
        self._frequency = Counter(word for words in corpus for word in words)
        self._sets: list[frozenset[str]] = []
        self._by_word: defaultdict[str, list[int]] = defaultdict(list)

    def _prefix(self, words: frozenset[str]) -> list[str]:
        ordered = sorted(words, key=lambda word: (self._frequency[word], word))
        return ordered[: len(words) - math.ceil(self._threshold * len(words)) + 1]

    def add(self, words: frozenset[str]) -> int:
        """Store a set; returns its number, counted from 0."""
        number = len(self._sets)
        self._sets.append(words)
        for word in self._prefix(words):
            self._by_word[word].append(number)
        return number

    def similar(self, words: frozenset[str]) -> Iterator[tuple[int, float]]:
        """Number and similarity of every stored set above the threshold."""
        candidates = {number for word in self._prefix(words) for number in self._by_word[word]}
        shortest, longest = self._threshold * len(words), len(words) / self._threshold
        for number in sorted(candidates):
            other = self._sets[number]
            similarity = jaccard(words, other) if shortest <= len(other) <= longest else 0.0
            if similarity > self._threshold:
                yield number, similarity
