"""An adapter from its files to its alias: fetched, checked, translated, loaded, proven, kept, drained."""
