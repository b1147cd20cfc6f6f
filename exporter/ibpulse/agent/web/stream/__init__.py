"""The stream of new samples: its viewers, and the events they receive."""
