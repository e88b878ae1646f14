"""``python -m validation questions``: ten questions to the packaged data set, and their answers."""

from __future__ import annotations

from typing import Any

from results.reader import open
from validation.page import ROOT, table

PAGE = ROOT / "docs" / "findings" / "data.md"

ATLAS = "experiment = 'atlas-digits' AND role = 'search'"
QUESTIONS = {
    "How much is there?": """
SELECT count(*) AS trials, count(DISTINCT study) AS studies, count(DISTINCT workload) AS workloads,
  count(DISTINCT optimizer) AS optimizers, round(sum(examples_run) / 1e9, 1) AS billion_examples
FROM trials""",
    "By what was it trained?": """
SELECT versions->>'torch' AS torch, versions->>'python' AS python, count(*) AS trials
FROM trials GROUP BY ALL ORDER BY trials DESC""",
    "How did trials end?": """
SELECT coalesce(stop_reason, 'none') AS ended_by, count(*) AS trials,
  round(100 * avg(steps_run / budget_steps), 1) AS percent_of_budget
FROM trials WHERE role = 'search' GROUP BY ALL ORDER BY trials DESC""",
    "Which optimizers diverge most often, in ranges of three decades?": f"""
SELECT optimizer, count(*) AS trials,
  round(100 * avg((stop_reason = 'diverged')::INT), 1) AS percent_diverged
FROM trials WHERE {ATLAS} GROUP BY ALL ORDER BY percent_diverged DESC, optimizer""",
    "How many steps does each optimizer take at the ends of its curve?": """
SELECT optimizer, min(steps_to_target) FILTER (batch_size = 4) AS at_4,
  min(steps_to_target) FILTER (batch_size = 1024) AS at_1024
FROM trials WHERE experiment = 'atlas-digits' AND role <> 'repeat' AND replicate = 0
GROUP BY ALL ORDER BY at_1024""",
    "How does the best learning rate grow with the batch size, as a power?": """
SELECT optimizer, round(regr_slope(ln(rate), ln(batch_size)), 2) AS power, count(*) AS batch_sizes
FROM (SELECT optimizer, batch_size, arg_min(learning_rate, steps_to_target) AS rate FROM trials
  WHERE experiment = 'noise-mnist' AND subset = 55000 GROUP BY ALL)
GROUP BY ALL ORDER BY power""",
    "Up to which batch size does momentum need at most a fifth more examples?": f"""
WITH curve AS (SELECT batch_size, min(batch_size * steps_to_target) AS examples FROM trials
  WHERE {ATLAS} AND optimizer = 'momentum' GROUP BY ALL)
SELECT max(batch_size) AS batch_size FROM curve
WHERE examples <= 1.2 * (SELECT min(examples) FROM curve)""",
    "How far do three searches of the same study scatter?": f"""
SELECT round(exp(avg(spread)), 2) AS factor_between_largest_and_least, count(*) AS batch_sizes
FROM (SELECT batch_size, ln(max(best) / min(best)) AS spread FROM (
  SELECT batch_size, replicate, min(steps_to_target) AS best FROM trials
  WHERE {ATLAS} AND optimizer = 'momentum' GROUP BY ALL) GROUP BY ALL)""",
    "By how much is a best trial lucky? (trained again with fresh seeds, over its own steps)": """
SELECT round(median(again / best), 2) AS median,
  round(quantile_cont(again / best, 0.9), 2) AS ninth, count(*) AS repeats
FROM (SELECT study, replicate, min(steps_to_target) AS best FROM trials
  WHERE experiment = 'atlas-digits' AND role = 'search' GROUP BY ALL)
JOIN (SELECT study, steps_to_target AS again FROM trials
  WHERE experiment = 'atlas-digits' AND role = 'repeat') USING (study)
WHERE again IS NOT NULL""",
    "How many steps of their budgets did dominated trials not need, at most?": """
SELECT round(100 * (1 - sum(steps_run) / sum(budget_steps)), 1) AS percent_of_their_steps,
  count(*) AS trials
FROM trials WHERE stop_reason = 'dominated'""",
}


def tables(source: Any = "own") -> dict[str, str]:
    """What docs/findings/data.md has: a question, its command and the answer, ten times."""
    parts, data = [], open(source)
    for question, sql in QUESTIONS.items():
        line = " ".join(sql.split())
        answer = data.query(line)
        rows = answer.astype(object).to_numpy().tolist()
        answered = table([str(name).replace("_", " ") for name in answer], rows)
        parts.append(f'**{question}**\n\n```sh\nbatchscale query "{line}" own\n```\n\n{answered}')
    return {"questions": "\n".join(parts)}
