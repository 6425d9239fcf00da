-- What each attempt of a run really ran: code, image, package versions. Written once its job is up.
CREATE TABLE trainer.attempts (
    run_id  text NOT NULL REFERENCES trainer.runs,
    attempt integer NOT NULL,
    record  jsonb NOT NULL,
    PRIMARY KEY (run_id, attempt)
);
