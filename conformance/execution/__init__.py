"""The execution of a plan: worker processes, their protocol, deadlines and crashes."""
