"""Pure arithmetic on arrays: no clock, no file, no log. Every function states its law."""
