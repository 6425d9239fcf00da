"""The ways the grammar teacher asks: the same meaning in other words. A style is a table of phrases, nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Style:
    """Phrases of one style. `{l}` is a column's label, `{v}` a value, `{w}` a second value, `{t}` a table's plural."""

    name: str
    ask: str
    equal: str
    either: str
    greater: str
    less: str
    at_least: str
    at_most: str
    between: str
    missing: str
    present: str
    true: str
    false: str
    dated: str
    """Leads a date phrase when no participle carries it: `with ordered date` + `since 2023-05-01`."""
    since: str
    before: str
    year: str
    per: str
    """Groups the rows. Each says that a group without rows is not asked for: plain "for each" would not."""
    descending: str
    ascending: str
    average: str
    total: str
    lowest: str
    highest: str
    kept: str
    """Stands in place of `per`: only the groups of more than `{v}` rows of `{t}`."""
    top: str
    bottom: str
    by_date: str
    """`{v}` rows of `{t}` by a date; `{w}` is `latest` or `earliest`."""
    ties: str
    ties_of_text: str
    lacking: str
    """Rows of `{t}` are absent."""
    same: str
    higher: str
    """Follows `same`."""
    both: str
    except_: str
    or_: str


TERSE = Style(
    name="terse",
    ask="{}",
    equal="with {l} {v}",
    either="with {l} {v} or {w}",
    greater="with {l} over {v}",
    less="with {l} under {v}",
    at_least="with {l} at least {v}",
    at_most="with {l} at most {v}",
    between="with {l} from {v} to {w}",
    missing="without {l}",
    present="with a known {l}",
    true="with {l} true",
    false="with {l} false",
    dated="with {l}",
    since="since {v}",
    before="before {v}",
    year="in {v}",
    per="by {l}",
    descending="highest {l} first",
    ascending="lowest {l} first",
    average="average {l}",
    total="total {l}",
    lowest="min {l}",
    highest="max {l}",
    kept="by {l} with over {v} {t}",
    top="top {v} {t} with highest {l}",
    bottom="bottom {v} {t} with lowest {l}",
    by_date="{v} {w} {t} by {l}",
    ties="ties by lower {l}",
    ties_of_text="ties alphabetically",
    lacking="with no {t}",
    same="with the same {l} as",
    higher="and a higher {l}",
    both="and in",
    except_="but not in",
    or_="or in",
)

PLAIN = Style(
    name="plain",
    ask="Show the {}.",
    equal="whose {l} is {v}",
    either="whose {l} is {v} or {w}",
    greater="whose {l} is more than {v}",
    less="whose {l} is less than {v}",
    at_least="whose {l} is {v} or more",
    at_most="whose {l} is {v} or less",
    between="whose {l} is between {v} and {w}",
    missing="whose {l} is missing",
    present="whose {l} is known",
    true="whose {l} is true",
    false="whose {l} is false",
    dated="whose {l} is",
    since="on or after {v}",
    before="before {v}",
    year="in the year {v}",
    per="for each {l} that has any",
    descending="sorted by {l} from high to low",
    ascending="sorted by {l} from low to high",
    average="average {l}",
    total="sum of {l}",
    lowest="minimum {l}",
    highest="maximum {l}",
    kept="for each {l} that has more than {v} {t}",
    top="{v} {t} with the highest {l}",
    bottom="{v} {t} with the lowest {l}",
    by_date="{v} {t} with the {w} {l}",
    ties="ties broken by lower {l}",
    ties_of_text="ties broken alphabetically",
    lacking="that have no {t}",
    same="that share the {l} of",
    higher="and have a higher {l}",
    both="and also in",
    except_="but not in any",
    or_="or else in",
)

POLITE = Style(
    name="polite",
    ask="Could you tell me the {}?",
    equal="that have {l} {v}",
    either="that have {l} {v} or {w}",
    greater="that have {l} above {v}",
    less="that have {l} below {v}",
    at_least="that have {l} of at least {v}",
    at_most="that have {l} of at most {v}",
    between="that have {l} between {v} and {w}",
    missing="that have no {l}",
    present="that have some {l}",
    true="that have {l} set to true",
    false="that have {l} set to false",
    dated="that have {l}",
    since="from {v} on",
    before="earlier than {v}",
    year="during {v}",
    per="broken down by {l}",
    descending="with the highest {l} first",
    ascending="with the lowest {l} first",
    average="mean {l}",
    total="total {l}",
    lowest="smallest {l}",
    highest="largest {l}",
    kept="for every {l} with over {v} {t}",
    top="{v} {t} whose {l} is highest",
    bottom="{v} {t} whose {l} is lowest",
    by_date="{v} {t} that have the {w} {l}",
    ties="ties going to the lower {l}",
    ties_of_text="ties decided alphabetically",
    lacking="that do not have any {t}",
    same="that have the same {l} as",
    higher="and a higher {l}",
    both="as well as in",
    except_="and do not occur in",
    or_="or in",
)

BUSINESS = Style(
    name="business",
    ask="We need the {}.",
    equal="where {l} equals {v}",
    either="where {l} equals {v} or {w}",
    greater="where {l} exceeds {v}",
    less="where {l} is below {v}",
    at_least="where {l} is at least {v}",
    at_most="where {l} is at most {v}",
    between="where {l} is in the range {v} to {w}",
    missing="where {l} is not recorded",
    present="where {l} is recorded",
    true="where {l} is yes",
    false="where {l} is no",
    dated="where {l} falls",
    since="on {v} or later",
    before="prior to {v}",
    year="within {v}",
    per="grouped by {l}",
    descending="in descending order of {l}",
    ascending="in ascending order of {l}",
    average="average {l}",
    total="total {l}",
    lowest="minimum {l}",
    highest="maximum {l}",
    kept="grouped by {l}, only groups of more than {v} {t}",
    top="{v} {t} having the highest {l}",
    bottom="{v} {t} having the lowest {l}",
    by_date="{v} {w} {t} in terms of {l}",
    ties="ties ranked by lower {l}",
    ties_of_text="ties ranked alphabetically",
    lacking="lacking {t}",
    same="matching the {l} of",
    higher="with a higher {l}",
    both="and likewise in",
    except_="excluding those in",
    or_="or alternatively in",
)

STYLES = (TERSE, PLAIN, POLITE, BUSINESS)
