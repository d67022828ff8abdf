"""The yardstick: what Flask itself needs for a small JSON answer, under the same gunicorn."""

from typing import Any

from flask import Flask

app = Flask(__name__)


@app.get("/bare")
def bare() -> dict[str, Any]:
    return {"id": "0b7a3f1e", "name": "Dana Demo", "email": "dana@example.com", "verified": True}


@app.get("/readyz")
def readyz() -> dict[str, Any]:
    return {"status": "ready"}
