"""What every layer speaks of: columns, Changes, the journal."""
