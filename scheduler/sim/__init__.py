"""Sessions away from a cluster: saved snapshots and their replay."""
