"""HTTP: metrics, the raw-window API, health, the pages. The only room that knows FastAPI and uvicorn."""
