"""Tensor names, types, shapes and raw bytes of safetensors files, without torch."""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from shared.artifacts import ArtifactError

MAXIMUM_HEADER_BYTES = 100 * 1024**2
"""The format's own limit."""

EXPONENT_MASKS: dict[str, tuple[str, int, int]] = {
    "F32": ("<u4", 0x7F800000, 0x7FFFFFFF),
    "F16": ("<u2", 0x7C00, 0x7FFF),
    "BF16": ("<u2", 0x7F80, 0x7FFF),
}
"""Type to unsigned word, exponent bits (all set: infinite or not a number), bits without the sign (all clear: zero)."""


@dataclass(frozen=True)
class Tensor:
    """One entry of a header."""

    dtype: str
    shape: tuple[int, ...]
    start: int
    """First byte, from the start of the file."""
    end: int


def read_header(path: Path) -> dict[str, Tensor]:
    """Name to entry. Raises ArtifactError for a file that is cut or no safetensors file."""
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            header_bytes = int.from_bytes(file.read(8), "little")
            if not 0 < header_bytes <= min(MAXIMUM_HEADER_BYTES, file_bytes - 8):
                raise ValueError("its header is longer than the file")
            header = json.loads(file.read(header_bytes))
        origin = 8 + header_bytes
        found = {
            name: Tensor(
                entry["dtype"],
                tuple(entry["shape"]),
                origin + entry["data_offsets"][0],
                origin + entry["data_offsets"][1],
            )
            for name, entry in header.items()
            if name != "__metadata__"
        }
        if any(tensor.end > file_bytes for tensor in found.values()):
            raise ValueError("it ends before its tensors do")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise ArtifactError(f"{path} is no complete safetensors file: {error}") from error
    return found


def read_words(path: Path, tensor: Tensor) -> npt.NDArray[np.unsignedinteger]:
    """A tensor's values as raw unsigned words. Raises KeyError for a type not in EXPONENT_MASKS."""
    word, _, _ = EXPONENT_MASKS[tensor.dtype]
    with path.open("rb") as file:
        file.seek(tensor.start)
        return np.frombuffer(file.read(tensor.end - tensor.start), dtype=word)


def is_zero(path: Path, tensor: Tensor) -> bool:
    """True when every value is zero, of either sign."""
    _, _, magnitude = EXPONENT_MASKS[tensor.dtype]
    return not (read_words(path, tensor) & magnitude).any()


def is_finite(path: Path, tensor: Tensor) -> bool:
    """False when a value is infinite or not a number."""
    _, exponent, _ = EXPONENT_MASKS[tensor.dtype]
    return not ((read_words(path, tensor) & exponent) == exponent).any()
