"""Results of communication benchmarks: read from their files, compared with the hardware and with a recording.

measurement       one result, and all results of a file, in SI units
bounded_files     reads files of unknown origin with bounds on their size, and repairs truncated JSON
nccl_tests_text, nccl_tests_json, rccl_results, perftest, inspector_log
                  one module per format; benchmark_files picks the one that fits
wire_factors      bytes that a node sends per operation, and what headers and protocols add
bandwidth_theory  the bound of the bottleneck tier, and the grade of a result
train_alignment   the trains of a run found in a recording, by bytes and order
rail_suspects     rails whose topology, rate or traffic may explain a poor result
benchmark_report  the comparison as text and JSON

No module keeps environment variables, arguments, host names or process ids of a file.
"""
