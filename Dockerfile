# The server; the same image runs the worker and the commands (see compose.yaml).
FROM python:3.13-slim-bookworm AS build
WORKDIR /app
RUN python -m venv /venv
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY sso sso
RUN /venv/bin/pip install --no-cache-dir --no-compile -c constraints.txt -e .

FROM python:3.13-slim-bookworm
# Fixed numbers, so that mounted files can be given to them.
RUN groupadd --gid 10001 sso && useradd --uid 10001 --gid sso --no-create-home sso
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1
WORKDIR /app
COPY --from=build /venv /venv
COPY --from=build /app /app
COPY wsgi.py ./
COPY migrations migrations
# Needed by the embedded default only: SQLite's file and the secret key made at the first start.
RUN install -d -o sso -g sso -m 0700 instance
VOLUME /app/instance

USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
CMD ["gunicorn", "-c", "python:sso.server.gunicorn_conf", "-b", "0.0.0.0:8000"]
