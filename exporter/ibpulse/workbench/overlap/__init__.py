"""Overlap of communication and computation.

trace_file, kineto_trace   a trace of the PyTorch profiler, streamed, and its GPU work
communication_kernels      which kernels communicate
intervals, exposed_time    exposed communication, overlap and idle time, exactly
wire_activity              when the wire of a recording was active
clock_match, waiting_time  the clocks of trace and recording; exposed time as waiting and moving
trace_report               all that as text and JSON
"""
