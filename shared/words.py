"""Names of tables and columns as English words: `sbCustName` → sb, customer, name. Pure."""

import re
from collections.abc import Iterable, Sequence

_SHORT_FORMS = """
acct=account addr=address admin=administration amt=amount appr=approval avg=average bal=balance bday=birthday
cat=category ccy=currency cert=certificate cnt=count comm=commission crtd=created ctry=country curr=current
cust=customer dept=department desc=description descr=description diag=diagnosis dob=date_of_birth dos=dose
dt=date emp=employee est=estimated fname=first_name freq=frequency grp=group hist=history ins=insurance
inv=invoice lang=language lname=last_name loc=location mfr=manufacturer mgr=manager msg=message nbr=number
num=number org=organization pct=percent pmt=payment prev=previous prod=product pwd=password qty=quantity
rec=record ref=reference reg=registered req=request resp=response sched=schedule seq=sequence src=source
stat=status tel=telephone temp=temperature tot=total ts=time tx=transaction txn=transaction upd=updated usr=user
val=value vol=volume whse=warehouse wt=weight yr=year
"""
ABBREVIATIONS = {short: full.replace("_", " ") for short, full in (pair.split("=") for pair in _SHORT_FORMS.split())}
"""Short forms that stand for one thing in nearly every schema."""

COMMON_ENDINGS = ("id", "name", "code", "date", "type", "no", "key")
"""What may follow a table's name without a separator: `authorid`."""

TECHNICAL_PREFIXES = ("tbl", "tb", "dim", "fact", "fct", "vw")

UNCOUNTABLE = ("info", "information", "data", "history", "low", "high", "metadata", "staff", "inventory", "equipment")
"""Table names ending so have no plural: their rows are spoken of as records."""

_IRREGULAR = {"person": "people", "child": "children", "man": "men", "woman": "women", "diagnosis": "diagnoses"} | {
    "analysis": "analyses",
    "crisis": "crises",
    "thesis": "theses",
    "basis": "bases",
}
_SINGULARS = {many: one for one, many in _IRREGULAR.items()}
_SAME = ("series", "species", "news")
IRREGULAR_PARTICIPLES = {"paid", "sent", "sold", "made", "born", "built"}


def singular(noun: str) -> str:
    """`categories` → `category`, `statuses` → `status`, `orders` → `order`; other words stay."""
    head, space, last = noun.rpartition(" ")
    if last in _SINGULARS:
        return head + space + _SINGULARS[last]
    if noun.endswith(("us", "is", "ss", *_SAME)):
        return noun
    if noun.endswith("ies"):
        return noun[:-3] + "y"
    if noun.endswith(("xes", "ches", "shes", "sses", "tuses", "nuses")):
        return noun[:-2]
    return noun[:-1] if noun.endswith("s") else noun


def plural(noun: str) -> str:
    """Inverse of `singular`; a noun that is plural already stays."""
    head, space, last = noun.rpartition(" ")
    if last in _IRREGULAR:
        return head + space + _IRREGULAR[last]
    if noun != singular(noun) or last in _SAME:
        return noun
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + ("es" if noun.endswith(("s", "x", "ch", "sh")) else "s")


def is_participle(word: str) -> bool:
    """`ordered`, `paid`."""
    return word.endswith("ed") or word in IRREGULAR_PARTICIPLES


def split_name(spelled: str) -> list[str]:
    """The parts that a schema's spelling separates: by underscore, camel case, digits, blanks; lower case."""
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", spelled)
    return [part.lower() for part in re.findall(r"[^\W\d_]+|\d+", apart)]


class Vocabulary:
    """Splits and expands the names of one schema, whose table names are its words."""

    def __init__(self, tables: Iterable[str]) -> None:
        """`tables`: their names as the schema spells them."""
        names = [split_name(table) for table in tables]
        first = {words[0] for words in names if len(words) > 1}
        shared = len(names) >= 3 and len(first) == 1 and all(len(words) > 1 for words in names)
        self._prefixes = {*TECHNICAL_PREFIXES, *(first if shared else ())}
        own = ["high", "low", *(words[0] for words in names if len(words) == 1 and len(words[0]) > 2)]
        self._nouns = {noun for word in own for noun in (word, singular(word))}

    def words(self, spelled: str) -> list[str]:
        """`sbTxCustId` → transaction, customer, id."""
        parts = split_name(spelled)
        while len(parts) > 1 and parts[0] in self._prefixes:
            parts = parts[1:]
        return [
            word for part in parts for glued in self._unglued(part) for word in ABBREVIATIONS.get(glued, glued).split()
        ]

    def _unglued(self, part: str) -> Sequence[str]:
        """`citingpaperid` → citing, paper, id: a table's name inside, an ending, at most one other word before."""
        if match := re.fullmatch(r"num(\w+(?:ing|ed))(by)?", part):  # numcitedby
            return [*(word for word in match.groups() if word), "count"]
        for noun in sorted(self._nouns - {part}, key=lambda word: (-len(word), word)):
            before, found, after = part.partition(noun)
            if not found or (before and len(before) < 4 and before not in self._nouns):
                continue
            if after in COMMON_ENDINGS or after in self._nouns or (not after and before in self._nouns):
                return [word for word in (before, noun, after) if word]
        return [part]
