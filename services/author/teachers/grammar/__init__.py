"""The teacher that needs no model: composes question and gold from a schema's own tables, keys, types and values."""

from services.author.teachers.grammar.teacher import NEEDS, GrammarTeacher

__all__ = ["NEEDS", "GrammarTeacher"]
