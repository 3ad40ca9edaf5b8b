"""From a plan to committed tokens: layout, model, KV cache, commit rules, executor. Torch begins here."""
