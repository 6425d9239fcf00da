# Verifier, and the sandbox Pods' image (`--target sandbox`): Postgres, no torch. Bases are arguments, for mirrors and digests.
ARG PYTHON_IMAGE=docker.io/library/python:3.11.14-slim-bookworm
FROM ${PYTHON_IMAGE} AS build
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY scripts/constraints.txt scripts/
COPY docker/requirements.py docker/
ARG PIP_INDEX_URL=https://pypi.org/simple
RUN python -m venv /opt/venv && python docker/requirements.py verifier > /tmp/requirements.txt \
    && /opt/venv/bin/pip install --no-cache-dir --constraint scripts/constraints.txt -r /tmp/requirements.txt \
    && rm -rf /opt/venv/lib/python3.11/site-packages/pip*

FROM ${PYTHON_IMAGE} AS base
RUN apt-get update && apt-get install --yes --no-install-recommends bubblewrap && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin sqlclimb
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /app
COPY --from=build /opt/venv /opt/venv
COPY shared shared
COPY services/__init__.py services/
COPY services/verifier services/verifier
COPY domains domains
RUN python -c "import services.verifier.__main__, shared.database" && ! python -c "import torch" 2>/dev/null

FROM base AS sandbox
RUN install -d -o 10001 -g 10001 /opt/sandbox
USER 10001:10001
RUN python -m services.verifier.sandbox.pod_server --bake /opt/sandbox/template
LABEL org.opencontainers.image.title="sqlclimb sandbox" org.opencontainers.image.licenses="Apache-2.0"

FROM base AS verifier
USER 10001:10001
EXPOSE 8001
HEALTHCHECK --start-period=60s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ.get('SQLCLIMB_PORT', '8001') + '/healthz', timeout=5)"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sqlclimb verifier" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" org.opencontainers.image.licenses="Apache-2.0"
CMD ["python", "-m", "services.verifier"]
