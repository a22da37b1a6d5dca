-- What would another allocator or setting save?
--
-- Median figures of each trace's replays, compared with its replay on the allocator that it was
-- recorded on. Replays that do not reproduce the program are left out.
WITH figures AS (
  SELECT program, trace, process, allocator, settings, recorded,
    median(average) AS average, median(peak) AS peak, median(seconds) AS seconds
  FROM replays
  WHERE reproduces
  GROUP BY program, trace, process, allocator, settings, recorded
)
SELECT other.program, other.allocator, other.settings,
  count(*) AS processes,
  sum(base.average - other.average) AS saved_bytes,
  sum(base.average - other.average) / sum(base.average) AS saved_share,
  sum(other.peak) / sum(base.peak) AS peak_ratio,
  sum(other.seconds) / sum(base.seconds) AS time_ratio
FROM figures other
JOIN figures base ON base.trace = other.trace AND base.process = other.process AND base.recorded
WHERE NOT other.recorded
GROUP BY other.program, other.allocator, other.settings
ORDER BY saved_bytes DESC, other.program, other.allocator, other.settings
