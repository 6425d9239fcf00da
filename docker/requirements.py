"""Prints what one image needs: the project's dependencies and one extra, from pyproject.toml."""

import sys
import tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)["project"]
extra = sys.argv[1]
if extra not in project["optional-dependencies"]:
    sys.exit(f"no extra {extra!r} in pyproject.toml; there are {sorted(project['optional-dependencies'])}")
CLI_ONLY = ("rich", "typer")
"""No image runs the command line."""

packages = [*project["dependencies"], *project["optional-dependencies"][extra]]
print("\n".join(package for package in packages if not package.startswith(CLI_ONLY)))
