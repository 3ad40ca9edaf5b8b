"""The paper's five benchmarks, read from the public files' own formats: prompts with the paper's shots, and graders.

No problem is part of this package. `Workload.benchmark` is the way in; from the bottom up: `rows` (a file → rows),
`catalogue` (rows → items, the templates, the five benchmarks), `prompts` (items → requests with exemplars), and the
graders in `answers` (GSM8K, TruthfulQA), `latex` (MATH) and `programs` (HumanEval, MBPP).
"""
