"""The jobs that run on this node, and those of its ports that carry their traffic.

cgroups  the jobs that have cgroups of Slurm or of a kubelet
files    the jobs in files that prologs write
sources  reads all of them in threads, and merges what they find
owners   leads from GPUs and devices to ports
watch    compares each reading with the one before, and records events
"""
