-- How did a release change a program's memory?
--
-- Means over the processes of a release; the ratios compare with the release before, by the day of
-- its first trace.
WITH peaks AS (
  SELECT trace, process, CAST(max(resident_heap) AS DOUBLE) AS resident
  FROM samples
  GROUP BY trace, process
), releases AS (
  SELECT p.program, p.release,
    min(p.started) AS since,
    count(*) AS processes,
    avg(CAST(p.peak_bytes AS DOUBLE)) AS peak_live,
    avg(peaks.resident) AS peak_resident,
    avg(CAST(p.allocations AS DOUBLE)) AS allocations
  FROM processes p
  LEFT JOIN peaks ON peaks.trace = p.trace AND peaks.process = p.process
  WHERE p.release IS NOT NULL
  GROUP BY p.program, p.release
)
SELECT program, release, processes, peak_live, peak_resident, allocations,
  peak_live / lag(peak_live) OVER (PARTITION BY program ORDER BY since, release) AS peak_live_ratio,
  peak_resident / lag(peak_resident) OVER (PARTITION BY program ORDER BY since, release)
    AS peak_resident_ratio
FROM releases
ORDER BY program, since, release
