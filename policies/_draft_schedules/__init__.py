"""Draft lengths of published schedules, as functions of progress and of draws. One file is one schedule."""
