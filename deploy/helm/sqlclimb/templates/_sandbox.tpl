{{- /* One run's Postgres: restricted, no token, memory-backed, ended by its deadline if everyone forgot it. */ -}}
{{- define "sqlclimb.sandboxPod" -}}
{{- $sandbox := .Values.verifier.sandbox -}}
apiVersion: v1
kind: Pod
metadata:
  namespace: {{ .Release.Namespace | quote }}
  labels: {{- include "sqlclimb.podLabels" (dict "root" $ "component" "sandbox") | nindent 4 }}
spec:
  serviceAccountName: {{ include "sqlclimb.fullname" . }}-sandbox
  automountServiceAccountToken: false
  enableServiceLinks: false
  restartPolicy: Never
  activeDeadlineSeconds: {{ $sandbox.deadlineSeconds }}
  terminationGracePeriodSeconds: 0
  hostNetwork: false
  {{- with $sandbox.runtimeClassName }}
  runtimeClassName: {{ . | quote }}
  {{- end }}
  securityContext: {{- include "sqlclimb.podSecurity" . | nindent 4 }}
  {{- with $sandbox.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $sandbox.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with $sandbox.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- with include "sqlclimb.pullSecrets" . }}{{ . | trim | nindent 2 }}{{ end }}
  containers:
    - name: postgres
      image: {{ include "sqlclimb.image" (dict "root" $ "image" "sandbox") }}
      imagePullPolicy: {{ .Values.images.pullPolicy }}
      args: [python, -m, services.verifier.sandbox.pod_server, --base, /opt/sandbox/template, --folder, /sandbox]
      ports: [{name: postgres, containerPort: 5432}]
      securityContext: {{- include "sqlclimb.containerSecurity" . | nindent 8 }}
      resources: {{- toYaml $sandbox.resources | nindent 8 }}
      readinessProbe:
        tcpSocket: {port: postgres}
        periodSeconds: 1
        failureThreshold: 30
      livenessProbe:
        tcpSocket: {port: postgres}
        initialDelaySeconds: 30
        periodSeconds: 20
      volumeMounts:
        - {name: sandbox, mountPath: /sandbox}
        - {name: tmp, mountPath: /tmp}
  volumes:
    - {name: sandbox, emptyDir: {medium: Memory, sizeLimit: {{ $sandbox.dataSize }}}}
    - {name: tmp, emptyDir: {medium: Memory, sizeLimit: 16Mi}}
{{- end }}
