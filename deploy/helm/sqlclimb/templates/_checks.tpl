{{- /* What the schema cannot say. */ -}}
{{- define "sqlclimb.checks" -}}
{{- if and .Values.engine.colocated (ne (include "sqlclimb.rayMode" .) "pod") -}}
{{- fail "engine.colocated: needs ray.mode pod: KubeRay's Pods come and go with runs, the engine must stay" -}}
{{- end -}}
{{- if .Values.engine.colocated -}}
{{- if or (gt (int .Values.engine.replicas) 1) (ne .Values.engine.autoscaling.kind "off") -}}
{{- fail "engine.replicas: a colocated engine is one, with the one Pod of Ray; set engine.colocated to false, or replicas to 1 and autoscaling.kind to off" -}}
{{- end -}}
{{- if and (eq .Values.engine.device "cuda") (not (hasKey .Values.engine.settings "gpu_memory_share")) -}}
{{- fail "engine.settings.gpu_memory_share: write which share of the GPU the engine takes, the trainer has the rest (0.25 for a 4B model, 0.40 for a 9B on 80 GB)" -}}
{{- end -}}
{{- end -}}
{{- if and (eq .Values.engine.device "cuda") (lt (int .Values.engine.gpus) 1) -}}
{{- fail "engine.gpus: a cuda engine needs at least 1; for the CPU set engine.device to cpu" -}}
{{- end -}}
{{- if and (eq .Values.database.mode "external") .Values.networkPolicy.enabled (empty .Values.database.external.cidrs) -}}
{{- fail "database.external.cidrs: name where the database answers (e.g. [10.0.0.5/32]), or set networkPolicy.enabled to false" -}}
{{- end -}}
{{- if and .Values.database.external.existingSecret (ne .Values.database.mode "external") -}}
{{- fail (printf "database.external.existingSecret: names a database, and database.mode is %s: set it to external, or clear this" .Values.database.mode) -}}
{{- end -}}
{{- if and (eq .Values.database.mode "cnpg") .Values.database.cnpg.backupDestination (empty .Values.artifacts.s3.existingSecret) -}}
{{- fail "database.cnpg.backupDestination: CloudNativePG needs the keys of that S3: name their Secret in artifacts.s3.existingSecret" -}}
{{- end -}}
{{- if and .Values.artifacts.s3.url (ne .Values.artifacts.store "s3") -}}
{{- fail "artifacts.s3.url: names a bucket, and artifacts.store is pvc: set it to s3, or clear this" -}}
{{- end -}}
{{- if and (eq .Values.artifacts.store "s3") (empty .Values.artifacts.s3.url) -}}
{{- fail "artifacts.s3.url: write s3://bucket/prefix, or set artifacts.store to pvc" -}}
{{- end -}}
{{- if and .Values.artifacts.s3.endpointUrl .Values.networkPolicy.enabled -}}
{{- $url := urlParse .Values.artifacts.s3.endpointUrl -}}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "80" "443" (eq $url.scheme "http")) -}}
{{- if ne $port (.Values.networkPolicy.s3Port | int | toString) -}}
{{- fail (printf "networkPolicy.s3Port: artifacts.s3.endpointUrl answers on port %s, and only %v is let out; set it to that" $port .Values.networkPolicy.s3Port) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.artifacts.backup.destination (eq .Values.artifacts.store "s3") -}}
{{- fail "artifacts.backup.destination: copies the shared claim, and artifacts.store is s3: version that bucket instead" -}}
{{- end -}}
{{- if and .Values.model.s3Uri (not (hasPrefix "/models/" .Values.model.path)) -}}
{{- fail "model.path: name the folder that model.s3Uri is copied to, /models/<folder>" -}}
{{- end -}}
{{- range $where, $tag := dict "images.tag" .Values.images.tag "database.bundled.image.tag" .Values.database.bundled.image.tag -}}
{{- if eq $tag "latest" -}}
{{- fail (printf "%s: latest is another image tomorrow; name a version, or pin a digest" $where) -}}
{{- end -}}
{{- end -}}
{{- $limit := .Values.verifier.sandbox.resources.limits.memory -}}
{{- if and (eq .Values.verifier.sandbox.driver "pod") $limit -}}
{{- if le (include "sqlclimb.bytes" $limit | float64) (include "sqlclimb.bytes" .Values.verifier.sandbox.dataSize | float64) -}}
{{- fail "verifier.sandbox.dataSize: is memory, and verifier.sandbox.resources.limits.memory must leave Postgres some beside it" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.ingress.enabled (empty .Values.ingress.host) -}}
{{- fail "ingress.host: name the domain below which each service gets a host of its own, e.g. climb.example.com" -}}
{{- end -}}
{{- range $where, $labels := dict "commonLabels" .Values.commonLabels "trainer.job.podLabels" .Values.trainer.job.podLabels -}}
{{- range $own := list "app.kubernetes.io/name" "app.kubernetes.io/instance" "app.kubernetes.io/component" "app.kubernetes.io/version" "app.kubernetes.io/managed-by" "helm.sh/chart" -}}
{{- if hasKey $labels $own -}}
{{- fail (printf "%s: %s is the chart's own label, by which Pods and releases are found" $where $own) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if eq (include "sqlclimb.rayMode" .) "kuberay" -}}
{{- $name := include "sqlclimb.fullname" . -}}
{{- if gt (len $name) 39 -}}
{{- fail (printf "fullnameOverride: choose a name of at most 39 characters, KubeRay takes none as long as %s-rollout" $name) -}}
{{- end -}}
{{- else -}}
{{- if .Values.trainer.job.kueue.queueName -}}
{{- fail "trainer.job.kueue.queueName: runs are RayJobs, which Kueue admits, only with ray.mode kuberay" -}}
{{- end -}}
{{- if .Values.ray.gcsFaultTolerance.enabled -}}
{{- fail "ray.gcsFaultTolerance.enabled: only KubeRay replaces a lost head, set ray.mode to kuberay" -}}
{{- end -}}
{{- end -}}
{{- if gt (int .Values.rollout.worker.minReplicas) (int .Values.rollout.worker.maxReplicas) -}}
{{- fail "rollout.worker.minReplicas: may not be above rollout.worker.maxReplicas" -}}
{{- end -}}
{{- end }}

{{- /* A Kubernetes quantity in bytes. */ -}}
{{- define "sqlclimb.bytes" -}}
{{- $text := toString . -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "Ki" 1024.0 "M" 1e6 "Mi" 1048576.0 "G" 1e9 "Gi" 1073741824.0 "T" 1e12 "Ti" 1099511627776.0 -}}
{{- mulf (regexReplaceAll "[A-Za-z]*$" $text "" | float64) (index $factors (regexFind "[A-Za-z]*$" $text)) | printf "%f" -}}
{{- end }}
