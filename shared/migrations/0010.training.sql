-- A step's refills are batches of their own; a run's events, and what its checkpoints score on the holdout.
ALTER TABLE rollout.batches ADD COLUMN refill integer NOT NULL DEFAULT 0;
ALTER TABLE rollout.batches DROP CONSTRAINT batches_pkey;
ALTER TABLE rollout.batches ADD PRIMARY KEY (run_id, step, refill);

CREATE TABLE trainer.events (
    event_id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run_id   text NOT NULL REFERENCES trainer.runs,
    record   jsonb NOT NULL
);
CREATE INDEX events_of_run ON trainer.events (run_id, event_id);

-- A sampling queued for a checkpoint; `record` is null until it has been measured.
CREATE TABLE trainer.evaluations (
    run_id      text NOT NULL REFERENCES trainer.runs,
    step        integer NOT NULL,
    kind        text NOT NULL,
    sampling_id text NOT NULL,
    record      jsonb,
    PRIMARY KEY (run_id, step, kind)
);
CREATE INDEX evaluations_unmeasured ON trainer.evaluations (run_id) WHERE record IS NULL;
