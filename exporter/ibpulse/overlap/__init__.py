"""Overlap of communication and computation.

trace_file, kineto_trace   a trace of the PyTorch profiler, streamed, and its GPU work
communication_kernels      which kernels communicate
intervals, exposed_time    exposed communication, overlap and idle time, exactly
wire_activity              when the wire of a recording was active
clock_match, waiting_time  the clocks of trace and recording; exposed time as waiting and moving
trace_report               all that as text and JSON
megatron_rules             the rules of Megatron about overlap, of its files of rules
run_options                the options of a run, from a configuration or a command line
rule_check                 a run against the rules; rule_check_text: as text and JSON
"""
