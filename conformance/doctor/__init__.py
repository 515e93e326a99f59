"""What could spoil a run of hours, looked for in seconds before it."""
