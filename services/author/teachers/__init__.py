"""Teachers by name. One folder each; all speak the protocol in `base`."""

from services.author.teachers.base import Teacher
from services.author.teachers.grammar import GrammarTeacher

TEACHERS: dict[str, Teacher] = {teacher.name: teacher for teacher in (GrammarTeacher(),)}
