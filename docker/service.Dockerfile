# Author, rollout, trainer and gateway: `--build-arg SERVICE=author`. The trainer takes a CUDA base; torch brings its own
# CUDA libraries, a compiler is for kernels that are compiled at start.
ARG BASE_IMAGE=docker.io/library/python:3.11.14-slim-bookworm
FROM ${BASE_IMAGE} AS build
ARG SERVICE
ARG PIP_INDEX_URL=https://pypi.org/simple
ARG PIP_EXTRA_INDEX_URL=
ARG EXTRA_PACKAGES=
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY scripts/constraints.txt scripts/
COPY docker/requirements.py docker/
RUN python3 -m venv /opt/venv && /opt/venv/bin/python docker/requirements.py ${SERVICE} > /tmp/requirements.txt \
    && /opt/venv/bin/pip install --no-cache-dir --constraint scripts/constraints.txt -r /tmp/requirements.txt ${EXTRA_PACKAGES} \
    && rm -rf /opt/venv/lib/python3.*/site-packages/pip*

FROM ${BASE_IMAGE}
ARG SERVICE
RUN useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin sqlclimb
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /app
COPY --from=build /opt/venv /opt/venv
COPY shared shared
COPY services/__init__.py services/
COPY services/${SERVICE} services/${SERVICE}
# The trainer's image also runs rollouts, where Ray is one Pod.
ARG ALSO=${SERVICE}
COPY services/${ALSO} services/${ALSO}
COPY domains domains
COPY docker/imports.py docker/
RUN python docker/imports.py ${SERVICE}
USER 10001:10001
HEALTHCHECK --start-period=120s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['SQLCLIMB_PORT'] + '/healthz', timeout=5)"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sqlclimb ${SERVICE}" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" org.opencontainers.image.licenses="Apache-2.0"
ENV SERVICE=${SERVICE}
CMD ["sh", "-c", "exec python -m services.$SERVICE"]
