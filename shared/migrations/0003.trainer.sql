-- Runs and their steps. A run's `attempt` fences: a job writes only while the run still has its attempt.
CREATE SCHEMA trainer;

CREATE TABLE trainer.runs (
    run_id text PRIMARY KEY,
    config jsonb NOT NULL,
    state text NOT NULL CHECK (state IN ('pending', 'running', 'done', 'stopped', 'failed')),
    attempt integer NOT NULL CHECK (attempt >= 1),
    stop_requested boolean NOT NULL DEFAULT false,
    versions jsonb NOT NULL DEFAULT '{}',
    error text NOT NULL DEFAULT '',
    created_at timestamptz NOT NULL DEFAULT now(),
    finished_at timestamptz
);

CREATE TABLE trainer.steps (
    run_id text NOT NULL REFERENCES trainer.runs,
    step integer NOT NULL CHECK (step >= 1),
    record jsonb NOT NULL,
    PRIMARY KEY (run_id, step)
);
