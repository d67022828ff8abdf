# The server; the same image runs the worker and the commands (see deploy/compose.yaml).
# Another base needs Python 3.11 or later, its venv, and Debian's package manager.
ARG BASE=python:3.13-slim-bookworm@sha256:ed86c82274b3c69b52fb5820f358f0bd7df0b603332063cb5c6e32bd220c3e6e
FROM ${BASE} AS build
WORKDIR /build
COPY requirements requirements
RUN python3 -m venv /tools \
    && /tools/bin/pip install --no-cache-dir --require-hashes -r requirements/build.txt \
    && python3 -m venv /venv \
    && /venv/bin/pip install --no-cache-dir --require-hashes -r requirements/server.txt
COPY pyproject.toml README.md LICENSE ./
COPY deploy deploy
COPY migrations migrations
COPY sso sso
RUN /tools/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheel . \
    && /venv/bin/pip install --no-cache-dir --no-index --no-deps /wheel/*.whl

FROM ${BASE}
# The first process of a container ignores signals that it has no handler for. tini passes them on,
# so that a stop works while Python is still loading.
# hadolint ignore=DL3008
RUN apt-get update && apt-get install -y --no-install-recommends tini \
    && rm -rf /var/lib/apt/lists/*
# Fixed numbers, so that mounted files can be given to them.
RUN groupadd --gid 10001 sso && useradd --uid 10001 --gid sso --no-create-home sso
ENV PATH=/venv/bin:$PATH PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \
    HOME=/var/lib/sso STATE_DIRECTORY=/var/lib/sso
COPY --from=build /venv /venv
# SQLite's file and the secret key made at the first start, if no setting names others.
RUN install -d -o sso -g sso -m 0700 /var/lib/sso
VOLUME /var/lib/sso
WORKDIR /var/lib/sso

USER 10001:10001
EXPOSE 8000
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz', timeout=2)"]
ENTRYPOINT ["/usr/bin/tini", "--"]
CMD ["gunicorn", "-c", "python:sso.server.gunicorn_conf", "-b", "0.0.0.0:8000"]
