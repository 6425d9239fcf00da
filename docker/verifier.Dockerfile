# Verifier, and the sandbox Pods' image (`--target sandbox`): Postgres, no torch. Bases are arguments, for mirrors and digests.
ARG BASE_IMAGE=docker.io/library/python:3.11.14-slim-bookworm
FROM ${BASE_IMAGE} AS build
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY scripts/constraints.txt scripts/
COPY docker/requirements.py docker/
ARG PIP_INDEX_URL=https://pypi.org/simple
RUN python3 -m venv /opt/venv && /opt/venv/bin/python docker/requirements.py verifier > /tmp/requirements.txt \
    && /opt/venv/bin/pip install --no-cache-dir --constraint scripts/constraints.txt -r /tmp/requirements.txt \
    && rm -rf /opt/venv/lib/python3.*/site-packages/pip*

FROM ${BASE_IMAGE} AS base
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/* /var/cache/apt/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin sqlclimb
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /app
COPY --from=build /opt/venv /opt/venv
COPY shared shared
COPY services/__init__.py services/
COPY services/verifier services/verifier
COPY domains domains
COPY docker/imports.py docker/
RUN python docker/imports.py verifier && ! python -c "import torch" 2>/dev/null
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sqlclimb verifier" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/sqlclimb/sqlclimb" org.opencontainers.image.base.name="${BASE_IMAGE}"

FROM base AS sandbox
RUN install -d -o 10001 -g 10001 /opt/sandbox /sandbox
USER 10001:10001
RUN python -m services.verifier.sandbox.pod_server --bake /opt/sandbox/template
EXPOSE 5432
HEALTHCHECK --start-period=30s CMD ["python", "-c", "import socket; socket.create_connection(('127.0.0.1', 5432), 5)"]
LABEL org.opencontainers.image.title="sqlclimb sandbox"
CMD ["python", "-m", "services.verifier.sandbox.pod_server", "--base", "/opt/sandbox/template", "--folder", "/sandbox"]

FROM base AS verifier
USER 10001:10001
EXPOSE 8001
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('SQLCLIMB_PORT', '8001') + '/healthz', timeout=5)"]
CMD ["python", "-m", "services.verifier"]
