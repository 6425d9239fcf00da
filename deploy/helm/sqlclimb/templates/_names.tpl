{{- define "sqlclimb.name" -}}
{{ default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- /* 40 characters at most: KubeRay and StatefulSets append to it, and a label holds 63. */ -}}
{{- define "sqlclimb.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride | trunc 40 | trimSuffix "-" }}
{{- else if contains (include "sqlclimb.name" .) .Release.Name -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- else -}}
{{ printf "%s-%s" .Release.Name (include "sqlclimb.name" .) | trunc 40 | trimSuffix "-" }}
{{- end -}}
{{- end }}

{{- /* (dict "root" $ "component" "verifier"); never changes, upgrades depend on it. */ -}}
{{- define "sqlclimb.selector" -}}
app.kubernetes.io/name: {{ include "sqlclimb.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- /* Of Pods: nothing that a new chart changes, or each upgrade would load every model anew and replace every Ray cluster. */ -}}
{{- define "sqlclimb.podLabels" -}}
{{ include "sqlclimb.selector" . }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "sqlclimb.labels" -}}
{{ include "sqlclimb.podLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version }}
{{- end }}

{{- /* (dict "root" $ "image" "verifier") */ -}}
{{- define "sqlclimb.image" -}}
{{- $images := .root.Values.images -}}
{{- $digest := index $images.digests .image -}}
{{ $images.registry }}/{{ .image }}{{ if $digest }}@{{ $digest }}{{ else }}:{{ $images.tag | default .root.Chart.AppVersion }}{{ end }}
{{- end }}

{{- /* The trainer's image: with CUDA and a compiler where runs have GPUs. */ -}}
{{- define "sqlclimb.trainerImage" -}}
{{ include "sqlclimb.image" (dict "root" . "image" (ternary "trainer-cuda" "trainer-cpu" (gt (int .Values.trainer.job.gpus) 0))) }}
{{- end }}

{{- define "sqlclimb.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - {name: {{ . | quote }}}
  {{- end }}
{{- end }}
{{- end }}

{{- define "sqlclimb.rayMode" -}}
{{- if ne .Values.ray.mode "auto" -}}
{{ .Values.ray.mode }}
{{- else if .Capabilities.APIVersions.Has "ray.io/v1" -}}
kuberay
{{- else -}}
pod
{{- end -}}
{{- end }}

{{- /* (dict "root" $ "choice" "auto" "api" "monitoring.coreos.com/v1"): `true` or nothing. */ -}}
{{- define "sqlclimb.wanted" -}}
{{- if or (eq .choice "on") (and (eq .choice "auto") (.root.Capabilities.APIVersions.Has .api)) -}}true{{- end -}}
{{- end }}

{{- define "sqlclimb.tokensSecret" -}}
{{ .Values.auth.existingSecret | default (printf "%s-tokens" (include "sqlclimb.fullname" .)) }}
{{- end }}

{{- define "sqlclimb.rayTokenSecret" -}}
{{ .Values.ray.auth.existingSecret | default (printf "%s-ray-token" (include "sqlclimb.fullname" .)) }}
{{- end }}

{{- define "sqlclimb.bundledSecret" -}}
{{ .Values.database.bundled.existingSecret | default (printf "%s-database" (include "sqlclimb.fullname" .)) }}
{{- end }}

{{- define "sqlclimb.sharedClaim" -}}
{{ .Values.artifacts.existingClaim | default (printf "%s-shared" (include "sqlclimb.fullname" .)) }}
{{- end }}

{{- define "sqlclimb.modelsClaim" -}}
{{ .Values.model.cache.existingClaim | default (printf "%s-models" (include "sqlclimb.fullname" .)) }}
{{- end }}

{{- /* Secret and key of the control database's DSN. */ -}}
{{- define "sqlclimb.databaseSecret" -}}
{{- $mode := .Values.database.mode -}}
{{- if eq $mode "external" -}}
{name: {{ required "database.external.existingSecret: name the Secret that holds the DSN, or set database.mode to bundled or cnpg" .Values.database.external.existingSecret | quote }}, key: {{ .Values.database.external.key | quote }}}
{{- else if eq $mode "cnpg" -}}
{name: {{ include "sqlclimb.fullname" . }}-database-app, key: uri}
{{- else -}}
{name: {{ include "sqlclimb.bundledSecret" . | quote }}, key: dsn}
{{- end -}}
{{- end }}

{{- /* Where rollouts answer: KubeRay names its Service after the RayService. */ -}}
{{- define "sqlclimb.rolloutHost" -}}
{{ include "sqlclimb.fullname" . }}-rollout{{ if eq (include "sqlclimb.rayMode" .) "kuberay" }}-serve-svc{{ end }}
{{- end }}

{{- /* Ports, once. */ -}}
{{- define "sqlclimb.ports" -}}
{verifier: 8001, author: 8002, inference: 8003, rollout: 8004, trainer: 8005, engine: 8010, database: 5432, sandbox: 5432}
{{- end }}
