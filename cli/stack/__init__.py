"""The local stack: the five services and what they need, run by supervisord in one folder."""
