"""The boards, a module for each. Another board is a module here and an entry in `tools.grafana.board_files.BOARDS`."""
