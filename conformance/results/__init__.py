"""What a run leaves behind: the journal, results.json, and everything derived from it."""
