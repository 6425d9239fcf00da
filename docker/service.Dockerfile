# Author, rollout, trainer and gateway: `--build-arg SERVICE=author`; docker/build.sh holds each one's arguments. On a GPU
# the trainer takes a CUDA devel base and a compiler, because Triton compiles kernels when they are first used.
ARG BASE_IMAGE=docker.io/library/python:3.11.14-slim-bookworm
FROM ${BASE_IMAGE} AS base
ARG SYSTEM_PACKAGES=
RUN if [ -n "${SYSTEM_PACKAGES}" ]; then apt-get update && apt-get install --yes --no-install-recommends ${SYSTEM_PACKAGES} \
      && rm -rf /var/lib/apt/lists/* /var/cache/apt/*; fi \
    && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin sqlclimb \
    && install -d -o 10001 -g 10001 /shared
# /shared: a Docker volume takes the owner of the folder that it covers

FROM base AS build
ARG SERVICE
ARG PIP_INDEX_URL=https://pypi.org/simple
ARG PIP_EXTRA_INDEX_URL=
ARG EXTRA_PACKAGES=
# Packages, as in `a|b`, that EXTRA_PACKAGES needs in other versions than those tried without it.
ARG UNCONSTRAINED=none
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY scripts/constraints.txt scripts/
COPY docker/requirements.py docker/
RUN python3 -m venv /opt/venv && /opt/venv/bin/python docker/requirements.py ${SERVICE} > /tmp/requirements.txt \
    && grep -vE "^(${UNCONSTRAINED})==" scripts/constraints.txt > /tmp/constraints.txt \
    && /opt/venv/bin/pip install --no-cache-dir --constraint /tmp/constraints.txt -r /tmp/requirements.txt ${EXTRA_PACKAGES} \
    && rm -rf /opt/venv/lib/python3.*/site-packages/pip*

FROM base
ARG SERVICE
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
ARG IMPORTS=
RUN python docker/imports.py ${SERVICE} ${IMPORTS}
USER 10001:10001
HEALTHCHECK --start-period=120s CMD ["python", "-c", "import os, urllib.request; urllib.request.urlopen('http://127.0.0.1:' + os.environ['SQLCLIMB_PORT'] + '/healthz', timeout=5)"]
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sqlclimb ${SERVICE}" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/sqlclimb/sqlclimb" org.opencontainers.image.base.name="${BASE_IMAGE}"
ENV SERVICE=${SERVICE}
CMD ["sh", "-c", "exec python -m services.$SERVICE"]
