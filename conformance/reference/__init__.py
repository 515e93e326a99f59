"""The reference and the yardsticks: computed once, stored by content, read-only in runs."""
