"""Output for people: the page, content views, commands, logs, figures, drafts of dialects."""
