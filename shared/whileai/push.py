"""Rows to a While account, through the SDK."""

import warnings
from collections.abc import Sequence
from typing import Any

from whileai.simulations.ingest.platform import PlatformError, push_rows

KEY_VARIABLE = "WHILEAI_API_KEY"


class PushError(Exception):
    """The platform took nothing; its own words, without the key."""


def push(rows: Sequence[dict[str, Any]], name: str, api_key: str, purpose: str) -> str:
    """Upload rows as a dataset for `train`, `holdout` or `eval`; its id. Raises PushError.

    Ungated: choosing what to train on is the SDK's part, on the rows it gets.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its note on the size of a holdout is for its own reports
            entry = push_rows(list(rows), name, api_key=api_key, mode="rl", purpose=purpose)
    except (PlatformError, ValueError, OSError) as error:
        raise PushError(str(error).replace(api_key, "[API key]")) from error
    return str(entry["datasetId"])
