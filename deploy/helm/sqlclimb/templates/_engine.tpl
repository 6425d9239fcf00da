{{- /* (dict "root" $): the vLLM container. */ -}}
{{- define "sqlclimb.engineContainer" -}}
{{- $root := .root -}}
{{- $engine := $root.Values.engine -}}
- name: engine
  image: {{ include "sqlclimb.image" (dict "root" $root "image" (printf "engine-%s" $engine.device)) }}
  imagePullPolicy: {{ $root.Values.images.pullPolicy }}
  args: [python, -m, services.inference.engine]
  ports: [{name: engine, containerPort: 8010}]
  securityContext: {{- include "sqlclimb.containerSecurity" $root | nindent 4 }}
  env: {{- include "sqlclimb.once" (dict "where" "engine" "variables" (include "sqlclimb.engineEnvironment" .)) | nindent 4 }}
  resources: {{- include "sqlclimb.withGpus" (dict "resources" $engine.resources "gpus" (ternary $engine.gpus 0 (eq $engine.device "cuda")) "gpuResource" $engine.gpuResource) | nindent 4 }}
  {{- include "sqlclimb.probes" (dict "port" "engine" "startupSeconds" $engine.startupSeconds "ready" "/health") | replace "/healthz" "/health" | nindent 2 }}
  volumeMounts:
    {{- include "sqlclimb.mounts" (dict "root" $root "names" (list "adapters" "shm" (ternary "models-write" "models" $root.Values.model.download))) | nindent 4 }}
{{- end }}

{{- define "sqlclimb.engineEnvironment" -}}
{{- $engine := .root.Values.engine -}}
{{ include "sqlclimb.environment" (dict "root" .root "needs" (list "listen" "model" "download") "port" 8010) }}
- {name: SQLCLIMB_DEVICE, value: {{ $engine.device }}}
{{- if eq $engine.device "cpu" }}
{{- include "sqlclimb.threads" (dict "name" "threads" "settings" $engine.settings) }}
{{- else }}
- {name: SQLCLIMB_TENSOR_PARALLEL, value: {{ include "sqlclimb.text" (max 1 (int $engine.gpus)) | quote }}}
{{- end }}
- {name: SQLCLIMB_START_SECONDS, value: {{ include "sqlclimb.text" $engine.startupSeconds | quote }}}
# kernels are compiled at start: caches must be writable, the root is not
- {name: XDG_CACHE_HOME, value: /tmp/cache}
- {name: VLLM_CACHE_ROOT, value: /tmp/cache/vllm}
- {name: TRITON_CACHE_DIR, value: /tmp/cache/triton}
- {name: TORCHINDUCTOR_CACHE_DIR, value: /tmp/cache/inductor}
{{- include "sqlclimb.settings" $engine.settings }}
{{ with $engine.extraEnv }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* Requests and limits plus GPUs. */ -}}
{{- define "sqlclimb.withGpus" -}}
{{- $resources := deepCopy .resources -}}
{{- if gt (int .gpus) 0 -}}
{{- range $side := list "requests" "limits" -}}
{{- $_ := set (index $resources $side) $.gpuResource (int $.gpus) -}}
{{- end -}}
{{- end -}}
{{ toYaml $resources }}
{{- end }}

{{- /* Copies the model from S3 into the cache, once. */ -}}
{{- define "sqlclimb.modelCopy" -}}
{{- with .root.Values.model.s3Uri }}
- name: model
  image: {{ include "sqlclimb.image" (dict "root" $.root "image" "inference") }}
  imagePullPolicy: {{ $.root.Values.images.pullPolicy }}
  args: [python, -m, services.inference.engine.model_copy, {{ . | quote }}, {{ $.root.Values.model.path | quote }}]
  securityContext: {{- include "sqlclimb.containerSecurity" $.root | nindent 4 }}
  env:
    {{- include "sqlclimb.environment" (dict "root" $.root "needs" (list "s3")) | nindent 4 }}
  resources:
    requests: {cpu: 250m, memory: 512Mi}
    limits: {cpu: "2", memory: 2Gi}
  volumeMounts:
    {{- include "sqlclimb.mounts" (dict "root" $.root "names" (list "models-write")) | nindent 4 }}
{{- end }}
{{- end }}
