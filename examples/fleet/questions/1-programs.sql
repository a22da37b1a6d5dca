-- Which program wastes most?
--
-- Waste is the resident heap beyond the live bytes, on average over a process's time. Each look at
-- a process stands for the time to the next one. Below 0: the program asked for pages that it never
-- touched.
WITH looks AS (
  SELECT program, trace, process,
    CAST(resident_heap AS DOUBLE) AS resident, CAST(live AS DOUBLE) AS live,
    lead(time) OVER (PARTITION BY trace, process ORDER BY time) - time AS span
  FROM samples
  WHERE resident_heap IS NOT NULL
), averages AS (
  SELECT program, trace, process,
    sum(resident * span) / sum(span) AS resident,
    sum(live * span) / sum(span) AS live
  FROM looks
  WHERE span > 0
  GROUP BY program, trace, process
)
SELECT program,
  count(*) AS processes,
  sum(resident - live) AS wasted_bytes,
  sum(resident) / sum(live) AS resident_per_live_byte
FROM averages
GROUP BY program
ORDER BY wasted_bytes DESC, program
