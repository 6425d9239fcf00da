{{- /* What the schema cannot say. */ -}}
{{- define "sqlclimb.checks" -}}
{{- if and .Values.engine.colocated (ne (include "sqlclimb.rayMode" .) "pod") -}}
{{- fail "engine.colocated: needs ray.mode pod: KubeRay's Pods come and go with runs, the engine must stay" -}}
{{- end -}}
{{- if and (eq .Values.engine.device "cuda") (lt (int .Values.engine.gpus) 1) -}}
{{- fail "engine.gpus: a cuda engine needs at least 1; for the CPU set engine.device to cpu" -}}
{{- end -}}
{{- if and (eq .Values.database.mode "external") .Values.networkPolicy.enabled (empty .Values.database.external.cidrs) -}}
{{- fail "database.external.cidrs: name where the database answers (e.g. [10.0.0.5/32]), or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- if and (eq .Values.artifacts.store "s3") (empty .Values.artifacts.s3.url) -}}
{{- fail "artifacts.s3.url: write s3://bucket/prefix, or set artifacts.store to pvc" -}}
{{- end -}}
{{- if and .Values.artifacts.backup.destination (eq .Values.artifacts.store "s3") -}}
{{- fail "artifacts.backup.destination: copies the shared claim, and artifacts.store is s3: version that bucket instead" -}}
{{- end -}}
{{- if gt (int .Values.rollout.worker.minReplicas) (int .Values.rollout.worker.maxReplicas) -}}
{{- fail "rollout.worker.minReplicas: may not be above rollout.worker.maxReplicas" -}}
{{- end -}}
{{- end }}
