{{- define "sqlclimb.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
fsGroupChangePolicy: OnRootMismatch
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "sqlclimb.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- /* One setting as an environment variable's text: Helm reads whole numbers as floats. */ -}}
{{- define "sqlclimb.text" -}}
{{- if or (kindIs "map" .) (kindIs "slice" .) -}}
{{ toJson . }}
{{- else if and (kindIs "float64" .) (eq (floor .) .) -}}
{{ printf "%.0f" . }}
{{- else -}}
{{ toString . }}
{{- end -}}
{{- end }}

{{- /* (dict "name" "threads" "settings" map): threads as many as the container may use cores, not as the node has. */ -}}
{{- define "sqlclimb.threads" -}}
{{- if not (hasKey .settings .name) }}
- name: SQLCLIMB_{{ upper .name }}
  valueFrom: {resourceFieldRef: {resource: limits.cpu, divisor: "1"}}
{{- end }}
{{- end }}

{{- /* A settings map as environment variables. */ -}}
{{- define "sqlclimb.settings" -}}
{{- range $name, $value := . }}
- {name: SQLCLIMB_{{ upper $name }}, value: {{ include "sqlclimb.text" $value | quote }}}
{{- end }}
{{- end }}

{{- /* (dict "root" $ "needs" (list "db" "tokens" …)): the settings that the chart itself decides. */ -}}
{{- define "sqlclimb.environment" -}}
{{- $root := .root -}}
{{- $full := include "sqlclimb.fullname" $root -}}
{{- $ports := include "sqlclimb.ports" $root | fromYaml -}}
{{- $needs := .needs -}}
- {name: HOME, value: /tmp}
- {name: PYTHONUNBUFFERED, value: "1"}
{{- if has "listen" $needs }}
- {name: SQLCLIMB_HOST, value: 0.0.0.0}
- {name: SQLCLIMB_PORT, value: {{ .port | quote }}}
{{- end }}
{{- if has "tokens" $needs }}
- {name: SQLCLIMB_TOKENS_FILE, value: /etc/sqlclimb/tokens/tokens.json}
{{- end }}
{{- with .tokenName }}
- {name: SQLCLIMB_TOKEN_NAME, value: {{ . }}}
{{- end }}
{{- if has "db" $needs }}
{{- $dsn := include "sqlclimb.databaseSecret" $root | fromYaml }}
- name: SQLCLIMB_DB
  valueFrom: {secretKeyRef: {name: {{ $dsn.name | quote }}, key: {{ $dsn.key | quote }}}}
{{- end }}
{{- if has "domains" $needs }}
- {name: SQLCLIMB_DOMAINS, value: '["/domains", "/app/domains"]'}
{{- end }}
{{- range $service := list "verifier" "author" "inference" }}
{{- if has $service $needs }}
- {name: SQLCLIMB_{{ upper $service }}_URL, value: "http://{{ $full }}-{{ $service }}:{{ index $ports $service }}"}
{{- end }}
{{- end }}
{{- if has "rollout" $needs }}
- {name: SQLCLIMB_ROLLOUT_URL, value: "http://{{ include "sqlclimb.rolloutHost" $root }}:{{ $ports.rollout }}"}
{{- end }}
{{- if has "artifacts" $needs }}
{{- if eq $root.Values.artifacts.store "s3" }}
- {name: SQLCLIMB_ARTIFACTS, value: {{ required "artifacts.s3.url: write s3://bucket/prefix, or set artifacts.store to pvc" $root.Values.artifacts.s3.url | quote }}}
{{- else }}
- {name: SQLCLIMB_ARTIFACTS, value: "file:///shared/artifacts"}
{{- end }}
{{- end }}
{{- if or (has "artifacts" $needs) (has "s3" $needs) }}
{{- with $root.Values.artifacts.s3.endpointUrl }}
- {name: AWS_ENDPOINT_URL, value: {{ . | quote }}}
{{- end }}
{{- with $root.Values.artifacts.s3.existingSecret }}
{{- range $key := list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
- name: {{ $key }}
  valueFrom: {secretKeyRef: {name: {{ $root.Values.artifacts.s3.existingSecret | quote }}, key: {{ $key | quote }}}}
{{- end }}
{{- end }}
{{- end }}
{{- if has "model" $needs }}
- {name: SQLCLIMB_MODEL, value: {{ required "model.path: name a Hugging Face model, or a folder below /models" $root.Values.model.path | quote }}}
- {name: SQLCLIMB_SERVED_NAME, value: {{ $root.Values.model.servedName | quote }}}
- {name: SQLCLIMB_MAX_LORAS, value: {{ include "sqlclimb.text" $root.Values.model.maxLoras | quote }}}
- {name: SQLCLIMB_MAX_LORA_RANK, value: {{ include "sqlclimb.text" $root.Values.model.maxLoraRank | quote }}}
{{- end }}
{{- if or (has "model" $needs) (has "hub" $needs) }}
- {name: HF_HOME, value: /models/hub}
- {name: HF_HUB_OFFLINE, value: {{ ternary "0" "1" (and (has "download" $needs) $root.Values.model.download) | quote }}}
{{- with $root.Values.model.hubTokenSecret }}
- name: HF_TOKEN
  valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: token}}
{{- end }}
{{- end }}
{{- if has "checkpoints" $needs }}
- {name: SQLCLIMB_CHECKPOINTS, value: /shared/checkpoints}
{{- end }}
{{- if has "golds" $needs }}
- {name: SQLCLIMB_GOLD_TOKEN_NAME, value: golds}
{{- end }}
{{- if has "ray" $needs }}
- {name: RAY_AUTH_MODE, value: token}
- name: RAY_AUTH_TOKEN
  valueFrom: {secretKeyRef: {name: {{ include "sqlclimb.rayTokenSecret" $root | quote }}, key: auth_token}}
- {name: RAY_USAGE_STATS_ENABLED, value: "0"}
{{- end }}
{{- end }}

{{- /* (dict "where" "author" "variables" text): those variables, each once. Helm 4 applies no list with one twice. */ -}}
{{- define "sqlclimb.once" -}}
{{- $seen := dict -}}
{{- range .variables | fromYamlArray -}}
{{- if hasKey $seen (toString .name) -}}
{{- fail (printf "%s.extraEnv: sets %s again, which the chart or another value sets already" $.where .name) -}}
{{- end -}}
{{- $_ := set $seen (toString .name) true -}}
{{- end -}}
{{ .variables | trim }}
{{- end }}

{{- /* (dict "root" $ "names" (list "tmp" "tokens" …) "service" "verifier"): mounts by name. */ -}}
{{- define "sqlclimb.mounts" -}}
{{- $names := .names -}}
- {name: tmp, mountPath: /tmp}
{{- if has "tokens" $names }}
- {name: tokens, mountPath: /etc/sqlclimb/tokens, readOnly: true}
{{- end }}
{{- if has "domains" $names }}
{{- if .root.Values.domains.existingClaim }}
- {name: domains, mountPath: /domains, readOnly: true}
{{- end }}
{{- range .root.Values.domains.configMaps }}
- {name: "domain-{{ . }}", mountPath: "/domains/{{ . }}", readOnly: true}
{{- end }}
{{- end }}
{{- if has "artifacts" $names }}
- {name: shared, mountPath: /shared/artifacts, subPath: artifacts}
{{- end }}
{{- if has "checkpoints" $names }}
- {name: shared, mountPath: /shared/checkpoints, subPath: checkpoints}
{{- end }}
{{- if has "adapters" $names }}
- {name: shared, mountPath: /shared/adapters, subPath: adapters}
{{- end }}
{{- if has "models" $names }}
- {name: models, mountPath: /models, readOnly: true}
{{- end }}
{{- if has "models-write" $names }}
- {name: models, mountPath: /models}
{{- end }}
{{- if has "shm" $names }}
- {name: shm, mountPath: /dev/shm}
{{- end }}
{{- end }}

{{- /* The volumes of those mounts. `service` names the token file, `shm` and `scratch` sizes. */ -}}
{{- define "sqlclimb.volumes" -}}
{{- $names := .names -}}
{{- $root := .root -}}
- {name: tmp, emptyDir: {sizeLimit: {{ .scratch | default "2Gi" }}}}
{{- if has "tokens" $names }}
- name: tokens
  secret:
    secretName: {{ include "sqlclimb.tokensSecret" $root | quote }}
    defaultMode: 0440
    items: [{key: {{ .service }}.json, path: tokens.json}]
{{- end }}
{{- if has "domains" $names }}
{{- with $root.Values.domains.existingClaim }}
- {name: domains, persistentVolumeClaim: {claimName: {{ . | quote }}, readOnly: true}}
{{- end }}
{{- range $root.Values.domains.configMaps }}
- {name: "domain-{{ . }}", configMap: {name: {{ . | quote }}}}
{{- end }}
{{- end }}
{{- if or (has "artifacts" $names) (has "checkpoints" $names) (has "adapters" $names) }}
- {name: shared, persistentVolumeClaim: {claimName: {{ include "sqlclimb.sharedClaim" $root | quote }}}}
{{- end }}
{{- if or (has "models" $names) (has "models-write" $names) }}
- {name: models, persistentVolumeClaim: {claimName: {{ include "sqlclimb.modelsClaim" $root | quote }}}}
{{- end }}
{{- if has "shm" $names }}
- {name: shm, emptyDir: {medium: Memory, sizeLimit: {{ .shm }}}}
{{- end }}
{{- end }}

{{- /* (dict "port" "http" "startupSeconds" 120): one probe for each question. */ -}}
{{- define "sqlclimb.probes" -}}
startupProbe:
  httpGet: {path: /healthz, port: {{ .port }}}
  periodSeconds: 5
  failureThreshold: {{ div (add .startupSeconds 4) 5 }}
readinessProbe:
  httpGet: {path: {{ .ready | default "/readyz" }}, port: {{ .port }}}
  periodSeconds: 5
  timeoutSeconds: 5
  failureThreshold: 3
livenessProbe:
  httpGet: {path: /healthz, port: {{ .port }}}
  periodSeconds: 15
  timeoutSeconds: 10
  failureThreshold: 4
{{- end }}

{{- /* Placement of a Pod: (dict "root" $ "component" "x" "values" .Values.x). */ -}}
{{- define "sqlclimb.placement" -}}
{{- with .values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .values.priorityClassName }}
priorityClassName: {{ . | quote }}
{{- end }}
topologySpreadConstraints:
  - maxSkew: {{ .root.Values.topologySpreadMaxSkew }}
    topologyKey: kubernetes.io/hostname
    whenUnsatisfiable: ScheduleAnyway
    labelSelector: {matchLabels: {{ include "sqlclimb.selector" . | fromYaml | toJson }}}
{{- include "sqlclimb.pullSecrets" .root }}
{{- end }}

{{- /*
A Deployment, its Service and its service account. (dict "root" $ "component" "verifier" "needs" (list …)
"names" (list …) "env" "…" "mounts" "…" "volumes" "…" "kubernetesApi" true "strategy" "Recreate" "graceSeconds" 30
"image" address, where it is not the component's own; "template" text of what it reads once, at its start: another restarts it)
*/ -}}
{{- define "sqlclimb.service" -}}
{{- $root := .root -}}
{{- $values := index $root.Values .component -}}
{{- $name := printf "%s-%s" (include "sqlclimb.fullname" $root) .component -}}
{{- $port := index (include "sqlclimb.ports" $root | fromYaml) .component -}}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels: {{- include "sqlclimb.labels" . | nindent 4 }}
spec:
  {{- if not .scaled }}
  replicas: {{ $values.replicas | default 1 }}
  {{- end }}
  strategy: {type: {{ .strategy | default "RollingUpdate" }}}
  selector: {matchLabels: {{ include "sqlclimb.selector" . | fromYaml | toJson }}}
  template:
    metadata:
      labels: {{- include "sqlclimb.podLabels" . | nindent 8 }}
      {{- if or $values.podAnnotations .template }}
      annotations:
        {{- with $values.podAnnotations }}{{ toYaml . | nindent 8 }}{{ end }}
        {{- with .template }}
        checksum/template: {{ sha256sum . }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ $name }}
      automountServiceAccountToken: {{ .kubernetesApi | default false }}
      enableServiceLinks: false
      terminationGracePeriodSeconds: {{ .graceSeconds | default 30 }}
      securityContext: {{- include "sqlclimb.podSecurity" $root | nindent 8 }}
      {{- include "sqlclimb.placement" (dict "root" $root "component" .component "values" $values) | nindent 6 }}
      containers:
        - name: {{ .component }}
          image: {{ .image | default (include "sqlclimb.image" (dict "root" $root "image" .component)) }}
          imagePullPolicy: {{ $root.Values.images.pullPolicy }}
          args: [python, -m, services.{{ .component }}]
          ports: [{name: http, containerPort: {{ $port }}}]
          securityContext: {{- include "sqlclimb.containerSecurity" $root | nindent 12 }}
          env: {{- include "sqlclimb.once" (dict "where" .component "variables" (include "sqlclimb.serviceEnvironment" (merge (dict "values" $values "port" $port) .))) | nindent 12 }}
          {{- with .envFromSecret }}
          envFrom: [{secretRef: {name: {{ . | quote }}}}]
          {{- end }}
          resources: {{- toYaml $values.resources | nindent 12 }}
          {{- include "sqlclimb.probes" (dict "port" "http" "startupSeconds" 180) | nindent 10 }}
          volumeMounts:
            {{- include "sqlclimb.mounts" (dict "root" $root "names" (append .names "tokens")) | nindent 12 }}
            {{- with .mounts }}{{ . | trim | nindent 12 }}{{ end }}
      volumes:
        {{- include "sqlclimb.volumes" (dict "root" $root "names" (append .names "tokens") "service" .component) | nindent 8 }}
        {{- with .volumes }}{{ . | trim | nindent 8 }}{{ end }}
---
apiVersion: v1
kind: Service
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace | quote }}
  labels: {{- include "sqlclimb.labels" . | nindent 4 }}
spec:
  selector: {{- include "sqlclimb.selector" . | nindent 4 }}
  ports: [{name: http, port: {{ $port }}, targetPort: http}]
  {{- if .sticky }}
  sessionAffinity: ClientIP
  {{- end }}
---
{{ include "sqlclimb.serviceAccount" (dict "root" $root "component" .component "annotations" $values.serviceAccountAnnotations) }}
{{- end }}

{{- define "sqlclimb.serviceEnvironment" -}}
{{ include "sqlclimb.environment" (dict "root" .root "needs" (concat (list "listen" "tokens") .needs) "port" .port "tokenName" .tokenName) }}
{{ with .env }}{{ . }}{{ end }}
{{ include "sqlclimb.settings" .values.settings | trim }}
{{ with .values.extraEnv }}{{ toYaml . }}{{ end }}
{{- end }}

{{- define "sqlclimb.serviceAccount" -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ include "sqlclimb.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "sqlclimb.labels" . | nindent 4 }}
  {{- with .annotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
automountServiceAccountToken: false
{{- end }}

{{- /* (dict "root" $ "component" "x" "rules" "…"): a Role for that component's service account. */ -}}
{{- define "sqlclimb.role" -}}
{{- $name := printf "%s-%s" (include "sqlclimb.fullname" .root) .component -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "sqlclimb.labels" . | nindent 4 }}
rules: {{- .rules | trim | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ $name }}
  namespace: {{ .root.Release.Namespace | quote }}
  labels: {{- include "sqlclimb.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: {{ $name }}}
subjects: [{kind: ServiceAccount, name: {{ $name }}, namespace: {{ .root.Release.Namespace | quote }}}]
{{- end }}
