"""HTTP: metrics, the API of raw windows, health, the live page. The only package that imports FastAPI and uvicorn."""
