"""The stream of new samples: viewers, what is new for them, and the events they receive."""
