"""Which jobs run on this node, and which of its ports carry their traffic.

`job_directory` reads directories of small files whose writers are trusted. Four sources find jobs, each a function of a
directory: `slurm_cgroups`, `slurm_mapping`, `job_documents` and `pod_cgroups`. `job_sources` reads them in threads and
merges what they find, `owners` leads from GPUs to ports, `job_watch` compares each reading with the one before and
records events.
"""
