"""Dashboards and rules as programs: queries apart from panels apart from boards. It must not run in the daemon."""
