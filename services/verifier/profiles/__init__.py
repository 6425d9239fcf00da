"""The comparison profiles by name; one file each."""

from services.verifier.profiles.base import Rules
from services.verifier.profiles.recipe import RECIPE
from services.verifier.profiles.standard import STANDARD
from services.verifier.profiles.strict import STRICT
from shared.contracts.verifier import Profile

RULES: dict[Profile, Rules] = {Profile.STANDARD: STANDARD, Profile.STRICT: STRICT, Profile.RECIPE: RECIPE}

__all__ = ["RULES", "Rules"]
