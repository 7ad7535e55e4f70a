-- Written by scripts/fold_stages.py from `fold.stages`: the stages of the fold, in Spark's SQL.

-- name: one_role
SELECT
  *,
  CASE op WHEN 'insert' THEN 'born' WHEN 'delete' THEN 'died' ELSE 'stays' END AS role
FROM __source

-- name: roles
SELECT
  *,
  EXPLODE(
    CASE
      WHEN op = 'insert'
      THEN ARRAY('born')
      WHEN op = 'delete'
      THEN ARRAY('died')
      WHEN op = 'update' AND had_old AND (
        __moved
      )
      THEN ARRAY('died', 'born')
      ELSE ARRAY('stays')
    END
  ) AS role
FROM __source

-- name: effects
SELECT
  __key_of_role,
  __place,
  op,
  role = 'born' AS born,
  role = 'died' AS died,
  __values_of_role
FROM __source

-- name: numbered
SELECT
  row_id,
  CASE WHEN depth >= 1 THEN depth ELSE raise_error('a row ends that has no open copy') END AS copy,
  __place,
  op,
  born,
  died,
  __carried
FROM (
  SELECT
    *,
    CAST(SUM(CASE WHEN born OR lsn = 0 THEN 1 ELSE 0 END - CASE WHEN died THEN 1 ELSE 0 END) OVER stack AS BIGINT) + CASE WHEN died THEN 1 ELSE 0 END AS depth
  FROM __source
  WINDOW stack AS (
    PARTITION BY __stack
    ORDER BY lsn, ordinal, began_lsn, began_ordinal
    rows BETWEEN UNBOUNDED preceding AND CURRENT ROW
  )
)

-- name: truncated
SELECT
  __key,
  CASE WHEN is_death THEN t.lsn ELSE f.lsn END AS lsn,
  CASE WHEN is_death THEN t.ordinal ELSE f.ordinal END AS ordinal,
  CASE WHEN is_death THEN t.xid ELSE f.xid END AS xid,
  CASE WHEN is_death THEN t.time ELSE f.time END AS time,
  CASE WHEN is_death THEN 'truncate' ELSE op END AS op,
  born AND NOT is_death AS born,
  died OR is_death AS died,
  __values_unless_death
FROM (
  SELECT
    *,
    LEAD(lsn) OVER by_key AS next_lsn,
    LEAD(ordinal) OVER by_key AS next_ordinal
  FROM __source
  WINDOW by_key AS (PARTITION BY __key ORDER BY lsn, ordinal)
) AS f
LEFT JOIN __truncates AS t
  ON t.truncate_epoch = f.epoch
JOIN (
  SELECT
    FALSE AS is_death
  UNION ALL
  SELECT
    TRUE
) AS d
  ON NOT is_death
  OR (
    NOT died
    AND NOT t.lsn IS NULL
    AND (
      next_lsn IS NULL OR t.lsn < next_lsn OR (
        t.lsn = next_lsn AND t.ordinal < next_ordinal
      )
    )
  )

-- name: lives
SELECT
  __key,
  __place,
  op,
  born,
  died,
  __carried,
  COALESCE(birth_lsn, first_lsn) AS life_lsn,
  COALESCE(birth_ordinal, first_ordinal) AS life_ordinal,
  NOT birth_lsn IS NULL AS life_born
FROM (
  SELECT
    *,
    LAST_VALUE(CASE WHEN born THEN lsn END) IGNORE NULLS OVER until_here AS birth_lsn,
    LAST_VALUE(CASE WHEN born THEN ordinal END) IGNORE NULLS OVER until_here AS birth_ordinal,
    FIRST_VALUE(CASE WHEN lsn > 0 THEN lsn END) IGNORE NULLS OVER of_key AS first_lsn,
    FIRST_VALUE(CASE WHEN lsn > 0 THEN ordinal END) IGNORE NULLS OVER of_key AS first_ordinal
  FROM __source
  WINDOW until_here AS (PARTITION BY __key ORDER BY lsn, ordinal rows BETWEEN UNBOUNDED preceding AND CURRENT ROW), of_key AS (PARTITION BY __key ORDER BY lsn, ordinal rows BETWEEN UNBOUNDED preceding AND UNBOUNDED following)
)

-- name: moves
SELECT
  lsn,
  ordinal,
  life_lsn,
  life_ordinal,
  life_born
FROM __source
WHERE
  died AND op = 'update'

-- name: chained
SELECT
  __key,
  __place,
  op,
  born,
  died,
  __carried,
  COALESCE(root_lsn, life_lsn) AS chain_lsn,
  COALESCE(root_ordinal, life_ordinal) AS chain_ordinal,
  COALESCE(root_born, life_born) AS chain_born
FROM __source AS l
LEFT JOIN __roots AS r
  ON r.of_lsn = l.life_lsn AND r.of_ordinal = l.life_ordinal AND l.life_born

-- name: filled
SELECT
  __key,
  __place,
  op,
  born,
  died,
  __kept,
  __filled
FROM __source
WINDOW until_here AS (PARTITION BY __row ORDER BY lsn, ordinal, died DESC rows BETWEEN UNBOUNDED preceding AND CURRENT ROW)

-- name: last_sent
SELECT
  LAST_VALUE(__one) IGNORE NULLS OVER until_here AS __one

-- name: begun
SELECT
  __key,
  __place,
  op,
  born,
  died,
  __values,
  MAX(began_lsn) OVER of_key AS began_lsn,
  MAX(began_ordinal) OVER of_key AS began_ordinal
FROM __source
WINDOW of_key AS (PARTITION BY __key)

-- name: net
SELECT
  *,
  LAG(lsn) OVER by_transaction IS NULL AS is_first,
  LEAD(lsn) OVER by_transaction AS until_lsn,
  LEAD(time) OVER by_transaction AS until_time,
  LEAD(xid) OVER by_transaction AS until_xid,
  LEAD(end_op) OVER by_transaction AS until_op
FROM (
  SELECT
    *,
    LEAD(lsn) OVER by_key AS following_lsn,
    FIRST_VALUE(born) OVER in_transaction AS from_nothing,
    COALESCE(LAST_VALUE(CASE WHEN born THEN op END) IGNORE NULLS OVER in_transaction, 'update') AS begin_op,
    COALESCE(LAST_VALUE(CASE WHEN died THEN op END) IGNORE NULLS OVER in_transaction, 'update') AS end_op
  FROM __source
  WHERE
    lsn > 0
  WINDOW by_key AS (PARTITION BY __key ORDER BY lsn, ordinal), in_transaction AS (PARTITION BY __key, lsn ORDER BY ordinal)
)
WHERE
  following_lsn IS NULL OR following_lsn <> lsn
WINDOW by_transaction AS (PARTITION BY __key ORDER BY lsn)

-- name: rows
SELECT
  kind,
  __key,
  __values_unless_close,
  __from_lsn AS _from_lsn,
  _to_lsn,
  time AS _from_time,
  _to_time,
  begin_op AS _op,
  _end_op,
  xid AS _xid,
  _end_xid,
  __from_ordinal AS _ordinal,
  COALESCE(DATE_FORMAT(_to_time, 'yyyy-MM'), 'open') AS _part
FROM (
  SELECT
    *,
    CASE WHEN kind = 'close' THEN lsn ELSE until_lsn END AS _to_lsn,
    CASE WHEN kind = 'close' THEN time ELSE until_time END AS _to_time,
    CASE WHEN kind = 'close' THEN xid ELSE until_xid END AS _end_xid,
    CASE WHEN kind = 'close' THEN end_op ELSE until_op END AS _end_op
  FROM (
    SELECT
      *,
      EXPLODE(
        CASE
          WHEN is_first AND from_nothing AND died
          THEN ARRAY()
          WHEN is_first AND from_nothing
          THEN ARRAY('birth')
          WHEN is_first AND died
          THEN ARRAY('close')
          WHEN is_first
          THEN ARRAY('close', 'version')
          WHEN died
          THEN ARRAY()
          ELSE ARRAY('version')
        END
      ) AS kind
    FROM __source
  )
)

-- name: last
SELECT
  kind,
  __key,
  __values_unless_close,
  __from_lsn AS _from_lsn,
  CAST(NULL AS BIGINT) AS _to_lsn,
  __from_ordinal AS _ordinal
FROM (
  SELECT
    *,
    EXPLODE(
      CASE
        WHEN from_nothing AND died
        THEN ARRAY()
        WHEN from_nothing
        THEN ARRAY('birth')
        WHEN died
        THEN ARRAY('close')
        ELSE ARRAY('close', 'version')
      END
    ) AS kind
  FROM (
    SELECT
      *,
      LEAD(lsn) OVER by_key AS following_lsn,
      FIRST_VALUE(born) OVER by_key AS from_nothing
    FROM __source
    WHERE
      lsn > 0
    WINDOW by_key AS (PARTITION BY __key ORDER BY lsn, ordinal)
  )
  WHERE
    following_lsn IS NULL
)

-- name: inserted
SELECT
  'birth' AS kind,
  __key_after,
  __carried,
  lsn AS _from_lsn,
  CAST(NULL AS BIGINT) AS _to_lsn,
  time AS _from_time,
  CAST(NULL AS TIMESTAMP) AS _to_time,
  op AS _op,
  CAST(NULL AS STRING) AS _end_op,
  xid AS _xid,
  CAST(NULL AS BIGINT) AS _end_xid,
  ordinal AS _ordinal,
  'open' AS _part
FROM __source
