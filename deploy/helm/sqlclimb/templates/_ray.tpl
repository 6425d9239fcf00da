{{- /*
A Pod of Ray, of the RayService or of a run's RayJob. (dict "root" $ "component" "rollout"|"trainer-job" "image" address
"values" placement "resources" … "role" "head"|"worker" "shm" size "extraEnv" list "podLabels" map "podAnnotations" map)
KubeRay writes the container's command. Probes are ours: KubeRay's call wget, which the images lack.
*/ -}}
{{- define "sqlclimb.rayPod" -}}
{{- $root := .root -}}
{{- $full := include "sqlclimb.fullname" $root -}}
{{- $isRollout := eq .component "rollout" -}}
{{- $needs := ternary (list "tokens" "db" "domains" "verifier" "author" "inference") (list "tokens" "db" "rollout" "inference" "artifacts" "checkpoints" "hub") $isRollout -}}
{{- $names := ternary (list "tokens" "domains") (list "tokens" "checkpoints" "models" "shm") $isRollout -}}
{{- if and (not $isRollout) (eq $root.Values.artifacts.store "pvc") }}{{ $names = append $names "artifacts" }}{{ end -}}
{{- if and (not $isRollout) $root.Values.trainer.golds }}
{{- $needs = concat $needs (list "author" "domains" "golds") }}{{ $names = append $names "domains" -}}
{{- end -}}
metadata:
  labels: {{- include "sqlclimb.podLabels" . | nindent 4 }}
    {{- with .podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    # a run in progress is worth more than a tidy node
    cluster-autoscaler.kubernetes.io/safe-to-evict: "false"
    karpenter.sh/do-not-disrupt: "true"
    {{- with .podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ $full }}-{{ .component }}
  automountServiceAccountToken: {{ and $isRollout (eq .role "head") }}  # Ray's autoscaler changes the RayCluster
  enableServiceLinks: false
  {{- if not $isRollout }}
  restartPolicy: Never
  {{- end }}
  {{- with .schedulerName }}
  schedulerName: {{ . | quote }}
  {{- end }}
  securityContext: {{- include "sqlclimb.podSecurity" $root | nindent 4 }}
  {{- include "sqlclimb.placement" (dict "root" $root "component" .component "values" .values) | nindent 2 }}
  containers:
    - name: ray-{{ .role }}
      image: {{ .image }}
      imagePullPolicy: {{ $root.Values.images.pullPolicy }}
      ports:
        {{- if eq .role "head" }}
        - {name: gcs, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        {{- end }}
        - {name: metrics, containerPort: 8080}
        {{- if $isRollout }}
        - {name: serve, containerPort: 8004}
        {{- end }}
      securityContext: {{- include "sqlclimb.containerSecurity" $root | nindent 8 }}
      env: {{- include "sqlclimb.once" (dict "where" (ternary "rollout" "trainer.job" $isRollout) "variables" (include "sqlclimb.rayEnvironment" (merge (dict "needs" $needs "isRollout" $isRollout) .))) | nindent 8 }}
      resources: {{- toYaml .resources | nindent 8 }}
      {{- $ready := ternary "{path: /api/gcs_healthz, port: dashboard}" "{path: /api/local_raylet_healthz, port: 52365}" (eq .role "head") }}
      startupProbe:
        httpGet: {{ $ready }}
        periodSeconds: 5
        failureThreshold: 60
      readinessProbe:
        httpGet: {{ if and $isRollout (eq .role "worker") }}{path: /-/healthz, port: serve}{{ else }}{{ $ready }}{{ end }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 10
      livenessProbe:
        httpGet: {{ $ready }}
        periodSeconds: 10
        timeoutSeconds: 10
        failureThreshold: 12
      volumeMounts:
        {{- include "sqlclimb.mounts" (dict "root" $root "names" $names) | nindent 8 }}
  volumes:
    {{- include "sqlclimb.volumes" (dict "root" $root "names" $names "service" (ternary "rollout" "trainer-job" $isRollout) "shm" .shm "scratch" "20Gi") | nindent 4 }}
{{- end }}

{{- define "sqlclimb.rayEnvironment" -}}
{{ include "sqlclimb.environment" (dict "root" .root "needs" .needs "tokenName" (ternary "rollout" "trainer" .isRollout)) }}
{{- if .isRollout }}
- {name: SQLCLIMB_HOST, value: 0.0.0.0}
- {name: SQLCLIMB_PORT, value: "8004"}
{{- include "sqlclimb.settings" .root.Values.rollout.settings }}
{{- else }}
- {name: SQLCLIMB_IMAGE, value: {{ .image | quote }}}
{{- include "sqlclimb.threads" (dict "name" "learner_threads" "settings" dict) }}
{{- end }}
{{ with .extraEnv }}{{ toYaml . }}{{ end }}
{{- end }}

{{- /* What RayService and RayJob share beside their Pods. */ -}}
{{- define "sqlclimb.rayCluster" -}}
rayVersion: {{ .Values.ray.version }}
authOptions:
  mode: token
  secretName: {{ include "sqlclimb.rayTokenSecret" . | quote }}
{{- with .Values.ray.gcsFaultTolerance }}
{{- if .enabled }}
gcsFaultToleranceOptions:
  redisAddress: {{ required "ray.gcsFaultTolerance.redisAddress: write host:port of Redis, or disable it" .redisAddress | quote }}
  {{- with .existingSecret }}
  redisPassword: {valueFrom: {secretKeyRef: {name: {{ . | quote }}, key: password}}}
  {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The RayJob of a run's attempt, but for its name, its entrypoint and its run's labels: the trainer adds those. */ -}}
{{- define "sqlclimb.rayJob" -}}
{{- $job := .Values.trainer.job -}}
{{- $pod := dict "root" $ "component" "trainer-job" "image" (include "sqlclimb.trainerImage" .) "values" $job "shm" $job.sharedMemory "extraEnv" $job.extraEnv "podLabels" $job.podLabels "podAnnotations" $job.podAnnotations "schedulerName" $job.schedulerName -}}
apiVersion: ray.io/v1
kind: RayJob
metadata:
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "sqlclimb.podLabels" (dict "root" $ "component" "trainer-job") | nindent 4 }}
    {{- with $job.kueue.queueName }}
    kueue.x-k8s.io/queue-name: {{ . | quote }}
    {{- end }}
    {{- with $job.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  submissionMode: HTTPMode
  suspend: {{ not (empty $job.kueue.queueName) }}
  backoffLimit: 0  # a new attempt has to fence this one, and only the trainer can begin it
  activeDeadlineSeconds: {{ $job.activeDeadlineSeconds }}
  shutdownAfterJobFinishes: true
  ttlSecondsAfterFinished: {{ $job.ttlSecondsAfterFinished }}
  rayClusterSpec:
    {{- include "sqlclimb.rayCluster" . | nindent 4 }}
    headGroupSpec:
      rayStartParams: {num-cpus: "0", num-gpus: "0", dashboard-host: 0.0.0.0}
      template: {{- include "sqlclimb.rayPod" (merge (dict "role" "head" "resources" $job.headResources) $pod) | nindent 8 }}
    workerGroupSpecs:
      - groupName: workers
        replicas: {{ $job.workers }}
        minReplicas: {{ $job.workers }}
        maxReplicas: {{ $job.workers }}
        rayStartParams: {num-gpus: {{ $job.gpus | int | quote }}}
        {{- $resources := include "sqlclimb.withGpus" (dict "resources" $job.workerResources "gpus" $job.gpus "gpuResource" $job.gpuResource) | fromYaml }}
        template: {{- include "sqlclimb.rayPod" (merge (dict "role" "worker" "resources" $resources) $pod) | nindent 10 }}
{{- end }}
