{{- /*
Who may speak to whom: the design's arrows, once. Each becomes one ingress rule at `to` and one egress rule at `from`;
a name of `sqlclimb.outside` stands for what is not ours. `ports` empty: all.
*/ -}}
{{- define "sqlclimb.arrows" -}}
{{- $kuberay := eq (include "sqlclimb.rayMode" .) "kuberay" -}}
{{- $learner := ternary "trainer-job" "rollout" $kuberay -}}
{{- $engine := ternary "rollout" "engine" .Values.engine.colocated -}}
- {from: author, to: verifier, ports: [8001]}
- {from: rollout, to: verifier, ports: [8001]}
- {from: rollout, to: author, ports: [8002]}
- {from: author, to: rollout, ports: [8004]}
- {from: rollout, to: inference, ports: [8003]}
- {from: trainer, to: rollout, ports: [8004]}
- {from: trainer, to: inference, ports: [8003]}
- {from: inference, to: {{ $engine }}, ports: [8010]}
{{- if $kuberay }}
- {from: trainer-job, to: rollout, ports: [8004]}
- {from: trainer-job, to: inference, ports: [8003]}
- {from: rollout, to: rollout, ports: []}
- {from: trainer-job, to: trainer-job, ports: []}
- {from: kuberay-operator, to: rollout, ports: [8265, 8004]}
- {from: kuberay-operator, to: trainer-job, ports: [8265]}
- {from: rollout, to: kubernetes-api, ports: []}
- {from: trainer, to: kubernetes-api, ports: []}
{{- else }}
- {from: rollout, to: rollout, ports: [8004]}
- {from: trainer, to: rollout, ports: [8265]}
{{- end }}
{{- range $client := list "author" "rollout" "trainer" "inference" "migrations" }}
- {from: {{ $client }}, to: {{ ternary "outer-database" "database" (eq $.Values.database.mode "external") }}, ports: [{{ $.Values.database.mode | eq "external" | ternary $.Values.database.external.port 5432 }}]}
{{- end }}
{{- if $kuberay }}
- {from: trainer-job, to: {{ ternary "outer-database" "database" (eq .Values.database.mode "external") }}, ports: [{{ .Values.database.mode | eq "external" | ternary .Values.database.external.port 5432 }}]}
{{- end }}
{{- if eq .Values.database.mode "cnpg" }}
- {from: database, to: database, ports: [5432, 8000]}
- {from: cnpg-operator, to: database, ports: [5432, 8000]}
- {from: database, to: kubernetes-api, ports: []}
{{- if .Values.database.cnpg.backupDestination }}
- {from: database, to: s3, ports: []}
{{- end }}
{{- end }}
{{- if and (eq .Values.database.mode "bundled") .Values.database.bundled.backup.enabled }}
- {from: backup, to: database, ports: [5432]}
{{- end }}
{{- if eq .Values.verifier.sandbox.driver "pod" }}
- {from: verifier, to: sandbox, ports: [5432]}
- {from: verifier, to: kubernetes-api, ports: []}
{{- end }}
{{- if and $kuberay .Values.ray.gcsFaultTolerance.enabled }}
- {from: rollout, to: redis, ports: []}
- {from: trainer-job, to: redis, ports: []}
{{- end }}
{{- if eq .Values.artifacts.store "s3" }}
- {from: inference, to: s3, ports: []}
- {from: trainer, to: s3, ports: []}
- {from: {{ $learner }}, to: s3, ports: []}
{{- end }}
{{- if include "sqlclimb.artifactsBackup" . }}
- {from: artifacts-backup, to: s3, ports: []}
{{- end }}
{{- if .Values.model.s3Uri }}
- {from: {{ $engine }}, to: s3, ports: []}
{{- end }}
{{- if .Values.model.download }}
- {from: {{ $engine }}, to: hub, ports: []}
{{- end }}
{{- if .Values.trainer.golds }}
- {from: trainer, to: author, ports: [8002]}
{{- if $kuberay }}
- {from: trainer-job, to: author, ports: [8002]}
{{- end }}
{{- end }}
{{- if .Values.networkPolicy.endpoints }}
- {from: rollout, to: endpoints, ports: []}
{{- end }}
{{- if .Values.author.teacherSecret }}
- {from: author, to: teachers, ports: []}
{{- end }}
{{- range $service, $port := dict "verifier" 8001 "author" 8002 "inference" 8003 "rollout" 8004 "trainer" 8005 }}
- {from: clients, to: {{ $service }}, ports: [{{ $port }}]}
- {from: smoke-test, to: {{ $service }}, ports: [{{ $port }}]}
- {from: prometheus, to: {{ $service }}, ports: [{{ $port }}]}
{{- end }}
{{- if .Values.ingress.enabled }}
{{- $ports := include "sqlclimb.ports" . | fromYaml }}
{{- range .Values.ingress.services }}
- {from: ingress-controller, to: {{ . }}, ports: [{{ index $ports . }}]}
{{- end }}
{{- end }}
- {from: prometheus, to: rollout, ports: [8080]}
- {from: prometheus, to: {{ $engine }}, ports: [8010]}
{{- if $kuberay }}
- {from: prometheus, to: trainer-job, ports: [8080]}
{{- end }}
{{- end }}

{{- /* Peers outside, as {ingress or egress peers, ports}. */ -}}
{{- define "sqlclimb.outside" -}}
{{- $policy := .Values.networkPolicy -}}
clients:
  peers:
    - podSelector: {matchLabels: {sqlclimb.io/client: "true"}}
    {{- with $policy.clients }}{{ toYaml . | nindent 4 }}{{ end }}
prometheus: {peers: {{ toJson $policy.prometheus }}}
ingress-controller: {peers: {{ toJson $policy.ingressController }}}
kuberay-operator: {peers: {{ toJson $policy.kuberayOperator }}}
cnpg-operator: {peers: {{ toJson $policy.cnpgOperator }}}
kubernetes-api: {cidrs: {{ toJson $policy.kubernetesApi }}, ports: {{ toJson $policy.kubernetesApiPorts }}}
s3: {cidrs: {{ toJson $policy.s3 }}, ports: [{{ $policy.s3Port }}]}
hub: {cidrs: [0.0.0.0/0], ports: [443]}
teachers: {cidrs: {{ toJson $policy.teachers }}, ports: [443]}
endpoints: {cidrs: {{ toJson $policy.endpoints }}, ports: {{ toJson $policy.endpointsPorts }}}
outer-database: {cidrs: {{ toJson .Values.database.external.cidrs }}}
redis: {cidrs: {{ toJson $policy.redis }}, ports: [{{ $policy.redisPort }}]}
{{- end }}

{{- /* (dict "root" $ "name" "author" "outside" map): the peers of one end of an arrow. */ -}}
{{- define "sqlclimb.peers" -}}
{{- if hasKey .outside .name -}}
{{- $outside := index .outside .name -}}
{{- with $outside.peers }}{{ toYaml . }}{{ end -}}
{{- range $outside.cidrs }}
- ipBlock: {cidr: {{ . }}}
{{- end -}}
{{- else -}}
- podSelector: {matchLabels: {{ include "sqlclimb.selector" (dict "root" .root "component" .name) | fromYaml | toJson }}}
{{- end -}}
{{- end }}

{{- /* (dict "outside" map "name" to "ports" list): an arrow's ports. */ -}}
{{- define "sqlclimb.arrowPorts" -}}
{{- $ports := .ports -}}
{{- if and (empty $ports) (hasKey .outside .name) }}{{ $ports = (index .outside .name).ports }}{{ end -}}
{{- with $ports }}
ports:
  {{- range . }}
  - {protocol: TCP, port: {{ int . }}}
  {{- end }}
{{- end }}
{{- end }}
