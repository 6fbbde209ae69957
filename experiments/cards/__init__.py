"""The report card of reproductions: what was published, what we get, under which reading, and the verdict."""
