{{- define "polylimit.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 53 | trimSuffix "-" }}
{{- else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 53 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "polylimit.selector" -}}
app.kubernetes.io/name: polylimit
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "polylimit.labels" -}}
{{ include "polylimit.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "polylimit.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{- define "polylimit.scheme" -}}
{{ if .Values.tls.secretName }}https{{ else }}http{{ end }}
{{- end }}

{{- /* What the containers of the server and of the sidecar have in common. */ -}}
{{- define "polylimit.environment" -}}
env:
  - name: POLYLIMIT_STORE
    valueFrom:
      secretKeyRef: {name: {{ .Values.secret.name }}, key: {{ .Values.secret.storeKey }}}
{{- end }}

{{- define "polylimit.probe" -}}
httpGet: {path: {{ .path }}, port: admin{{ if .root.Values.tls.secretName }}, scheme: HTTPS{{ end }}}
{{- end }}

{{- define "polylimit.probes" -}}
startupProbe:
  {{ include "polylimit.probe" (dict "root" . "path" "/readyz") }}
  periodSeconds: 1
  failureThreshold: 60
livenessProbe:
  {{ include "polylimit.probe" (dict "root" . "path" "/healthz") }}
readinessProbe:
  {{ include "polylimit.probe" (dict "root" . "path" "/readyz") }}
  periodSeconds: 2
{{- end }}

{{- define "polylimit.security" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "polylimit.callers" -}}
- name: polylimit-callers
  secret:
    secretName: {{ .Values.secret.name }}
    items: [{key: {{ .Values.secret.tokensKey }}, path: tokens}]
{{- if .Values.tls.secretName }}
- name: polylimit-tls
  secret: {secretName: {{ .Values.tls.secretName }}}
{{- end }}
{{- end }}

{{- define "polylimit.mounts" -}}
- {name: polylimit-callers, mountPath: /etc/polylimit/callers, readOnly: true}
{{- if .Values.tls.secretName }}
- {name: polylimit-tls, mountPath: /etc/polylimit/tls, readOnly: true}
{{- end }}
{{- end }}

{{- /* The arguments for callers beyond the pod. */ -}}
{{- define "polylimit.callersArguments" -}}
- --tokens
- /etc/polylimit/callers/tokens
{{- if .Values.tls.secretName }}
- --certificate
- /etc/polylimit/tls/tls.crt
- --key
- /etc/polylimit/tls/tls.key
{{- else }}
# Tokens cross the cluster's network without TLS: `tls` of the chart's values changes that.
- --insecure
{{- end }}
- --drain
- {{ .Values.shutdown.drain }}s
- --log-format
- json
{{- end }}

{{- /*
The container of `polylimit serve` for `initContainers` of another chart's pod, whose containers then find it at http://127.0.0.1:8180. That
chart depends on this one, with `server.enabled: false`:

    initContainers:
      {{- include "polylimit.sidecar" .Subcharts.polylimit | nindent 8 }}
    volumes:
      {{- include "polylimit.sidecarVolumes" .Subcharts.polylimit | nindent 8 }}

The pod's terminationGracePeriodSeconds has to be longer than `shutdown.drain` and the service's own end together.
*/ -}}
{{- define "polylimit.sidecar" -}}
# A container of the pod's start that goes on: it is ready before the service starts, and ends after it.
- name: polylimit
  image: {{ include "polylimit.image" . }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  restartPolicy: Always
  args:
    - serve
    # Only the containers of the pod reach it.
    - --listen
    - http://127.0.0.1:8180
    # Every pod of the cluster reaches this one, so every caller there needs a token: Prometheus one with the role read. The kubelet's probes
    # need none.
    - --admin
    - {{ include "polylimit.scheme" . }}://0.0.0.0:8181
    {{- include "polylimit.callersArguments" . | nindent 4 }}
  {{- include "polylimit.environment" . | nindent 2 }}
  ports:
    - {name: admin, containerPort: 8181}
  volumeMounts:
    {{- include "polylimit.mounts" . | nindent 4 }}
  {{- include "polylimit.probes" . | nindent 2 }}
  resources:
    {{- toYaml .Values.sidecar.resources | nindent 4 }}
  {{- include "polylimit.security" . | nindent 2 }}
{{- end }}

{{- define "polylimit.sidecarVolumes" -}}
{{ include "polylimit.callers" . }}
{{- end }}
