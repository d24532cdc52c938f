"""Vocabulary of every layer: columns, Changes, the journal."""
