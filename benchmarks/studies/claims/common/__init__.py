"""What the studies share: results that are kept, training for a number of seconds, and how pictures look."""
