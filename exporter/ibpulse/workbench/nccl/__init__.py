"""Results of communication benchmarks: read from their files, compared with the hardware and with a recording.

results               results in SI units, bytes that a node sends per operation, and bounded reading
nccl_tests, formats   nccl-tests; rccl-tests, perftest and NCCL Inspector, and the choice of the reader
grades                the bound of the bottleneck tier, the grade of a result, and suspect rails
report                the trains of a run found in a recording; the comparison as text and JSON

No module keeps environment variables, arguments, host names or process ids of a file.
"""
