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
    descending: str
    ascending: str
    average: str
    total: str
    lowest: str
    highest: str
    many: str
    """More rows than a number."""
    top: str
    bottom: str
    by_date: str
    """`{v}` rows of `{t}` by a date; `{w}` is `latest` or `earliest`."""
    ties: str
    ties_of_text: str
    lacking: str
    """Rows of `{t}` are absent."""
    same: str
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
    present="with known {l}",
    true="with {l} true",
    false="with {l} false",
    dated="with {l}",
    since="since {v}",
    before="before {v}",
    year="in {v}",
    per="per {l}",
    descending="highest {l} first",
    ascending="lowest {l} first",
    average="average {l}",
    total="total {l}",
    lowest="lowest {l}",
    highest="highest {l}",
    many="over {v}",
    top="top {v} {t} by {l}",
    bottom="bottom {v} {t} by {l}",
    by_date="{v} {w} {t} by {l}",
    ties="ties by {l}",
    ties_of_text="ties alphabetically",
    lacking="with no {t}",
    same="with the same {l} as",
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
    per="for each {l}",
    descending="sorted by {l} from high to low",
    ascending="sorted by {l} from low to high",
    average="average {l}",
    total="sum of {l}",
    lowest="minimum {l}",
    highest="maximum {l}",
    many="more than {v}",
    top="{v} {t} with the highest {l}",
    bottom="{v} {t} with the lowest {l}",
    by_date="{v} {t} with the {w} {l}",
    ties="ties broken by lower {l}",
    ties_of_text="ties broken alphabetically",
    lacking="that have no {t}",
    same="that share the {l} of",
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
    per="for every {l}",
    descending="with the highest {l} first",
    ascending="with the lowest {l} first",
    average="mean {l}",
    total="total {l}",
    lowest="smallest {l}",
    highest="largest {l}",
    many="over {v}",
    top="{v} {t} that have the highest {l}",
    bottom="{v} {t} that have the lowest {l}",
    by_date="{v} {t} that have the {w} {l}",
    ties="ties going to the lower {l}",
    ties_of_text="ties going alphabetically",
    lacking="that do not have any {t}",
    same="that have the same {l} as",
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
    at_least="where {l} is not under {v}",
    at_most="where {l} is not over {v}",
    between="where {l} ranges from {v} to {w}",
    missing="where {l} is not recorded",
    present="where {l} is recorded",
    true="where {l} is yes",
    false="where {l} is no",
    dated="where {l} is",
    since="since {v} inclusive",
    before="prior to {v}",
    year="within {v}",
    per="grouped by {l}",
    descending="in descending order of {l}",
    ascending="in ascending order of {l}",
    average="average {l}",
    total="total {l}",
    lowest="minimum {l}",
    highest="maximum {l}",
    many="more than {v}",
    top="{v} leading {t} by {l}",
    bottom="{v} last {t} by {l}",
    by_date="{v} {w} {t} in terms of {l}",
    ties="ties ranked by lower {l}",
    ties_of_text="ties ranked alphabetically",
    lacking="lacking {t}",
    same="matching the {l} of",
    both="and likewise in",
    except_="excluding those in",
    or_="or alternatively in",
)

STYLES = (TERSE, PLAIN, POLITE, BUSINESS)
