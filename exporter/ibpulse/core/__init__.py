"""What agent, gateway and workbench share: values, answers, client, ring, statistics, events, recordings, HTTP."""
