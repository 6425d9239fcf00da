-- Rows of one sampling in the order they landed: read page by page, whatever else the ledger holds.
-- depends: 0002.rollout

CREATE INDEX rows_of_sampling ON rollout.rows (sampling_id, row_id);
