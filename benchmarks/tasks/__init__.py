"""How well a model calls tools through VTC: an agent's loop with real effects in a scratch folder."""
