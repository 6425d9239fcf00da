-- Attempts that were started by the service itself, one after the other, without a step between them.
ALTER TABLE trainer.runs ADD COLUMN restarts integer NOT NULL DEFAULT 0;
