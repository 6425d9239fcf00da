"""Starting, watching and stopping a run's job: on the local Ray, or as a RayJob of a cluster."""
