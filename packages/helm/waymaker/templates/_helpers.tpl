{{- define "waymaker.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains "waymaker" .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-waymaker" (.Release.Name | trunc 43 | trimSuffix "-") }}
{{- end }}
{{- end }}

{{- define "waymaker.selector" -}}
app.kubernetes.io/name: waymaker
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "waymaker.labels" -}}
{{ include "waymaker.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "waymaker.serviceAccount" -}}
{{- .Values.serviceAccount.name | default (ternary (include "waymaker.fullname" .) "default" .Values.serviceAccount.create) }}
{{- end }}

{{- define "waymaker.host" -}}
{{ include "waymaker.fullname" . }}.{{ .Release.Namespace }}.svc
{{- end }}

{{- /* The server keeps its log in a directory of the volume: the root of a volume may have other files, such as lost+found. */}}
{{- define "waymaker.dataDir" -}}
{{ ternary "/var/lib/waymaker/data" "none" .Values.persistence.enabled }}
{{- end }}

{{- /* Refuses values that would start no server, or several servers with the same keys. */}}
{{- define "waymaker.validate" -}}
{{- if gt (int .Values.replicaCount) 1 }}
{{- fail "replicaCount must be 1, or 0 to stop the server: Waymaker does not replicate, so each Pod would grant the same locks again. For more servers, install more releases, each with its own keys" }}
{{- end }}
{{- if not .Values.insecure }}
{{- if not .Values.tls.existingSecret }}
{{- fail "clients reach the server over the network, so set tls.existingSecret, and auth.existingSecret or tls.clientCaKey; or accept the risk with insecure=true" }}
{{- end }}
{{- if not (or .Values.auth.existingSecret .Values.tls.clientCaKey) }}
{{- fail "clients are not authenticated; set auth.existingSecret or tls.clientCaKey, or accept the risk with insecure=true" }}
{{- end }}
{{- end }}
{{- if and .Values.tls.clientCaKey (not .Values.tls.existingSecret) }}
{{- fail "tls.clientCaKey needs tls.existingSecret" }}
{{- end }}
{{- if and .Values.tls.clientCrlKey (not .Values.tls.clientCaKey) }}
{{- fail "tls.clientCrlKey needs tls.clientCaKey" }}
{{- end }}
{{- if and .Values.auth.existingSecret (not (or .Values.auth.tokensKey .Values.auth.accessKey)) }}
{{- fail "auth.existingSecret needs auth.tokensKey or auth.accessKey" }}
{{- end }}
{{- if and .Values.quorum.clientCertificate (not .Values.quorum.tlsSecret) }}
{{- fail "quorum.clientCertificate needs quorum.tlsSecret" }}
{{- end }}
{{- if le (int .Values.terminationGracePeriodSeconds) (int .Values.drainSeconds) }}
{{- fail (printf "terminationGracePeriodSeconds is %d; it must be longer than drainSeconds, which is %d" (int .Values.terminationGracePeriodSeconds) (int .Values.drainSeconds)) }}
{{- end }}
{{- end }}

{{- /* A value of TOML. Helm reads numbers of a file as floats, so its own function toToml writes 2.0, which the server refuses. */}}
{{- define "waymaker.tomlValue" -}}
{{- if or (kindIs "string" .) (kindIs "slice" .) (kindIs "bool" .) }}{{ toRawJson . }}{{ else }}{{ int64 . }}{{ end }}
{{- end }}

{{- define "waymaker.toml" -}}
{{- $host := include "waymaker.fullname" . }}
{{- $config := deepCopy .Values.config }}
{{- range $name, $port := dict "listen" 7420 "grpc_listen" 7421 "http_listen" 7422 }}
{{- $_ := set $config $name (printf "%s:%d" $.Values.listenHost $port) }}
{{- end }}
{{- /* For waymaker-ctl in the Pod. */}}
{{- $_ := set $config "unix" "/run/waymaker/waymaker.sock" }}
{{- $_ := set $config "data_dir" (include "waymaker.dataDir" .) }}
{{- $_ := set $config "drain" (printf "%ds" (int .Values.drainSeconds)) }}
{{- $_ := set $config "insecure" .Values.insecure }}
{{- /* Names by which clients in the cluster reach the HTTP port. The server refuses other names. */}}
{{- $hosts := list $host (printf "%s.%s" $host .Release.Namespace) (include "waymaker.host" .) (printf "%s.%s" (include "waymaker.host" .) .Values.clusterDomain) }}
{{- $_ := set $config "http_hosts" (concat $hosts (.Values.config.http_hosts | default list)) }}
{{- with .Values.tls }}
{{- if .existingSecret }}
{{- $_ := set $config "tls_cert" "/etc/waymaker/tls/tls.crt" }}
{{- $_ := set $config "tls_key" "/etc/waymaker/tls/tls.key" }}
{{- end }}
{{- if .clientCaKey }}
{{- $_ := set $config "tls_client_ca" (printf "/etc/waymaker/tls/%s" .clientCaKey) }}
{{- end }}
{{- if .clientCrlKey }}
{{- $_ := set $config "tls_client_crl" (printf "/etc/waymaker/tls/%s" .clientCrlKey) }}
{{- end }}
{{- end }}
{{- with .Values.auth }}
{{- if and .existingSecret .tokensKey }}
{{- $_ := set $config "tokens" (printf "/etc/waymaker/auth/%s" .tokensKey) }}
{{- end }}
{{- if and .existingSecret .accessKey }}
{{- $_ := set $config "access" (printf "/etc/waymaker/auth/%s" .accessKey) }}
{{- end }}
{{- end }}
{{- if .Values.quorum.tlsSecret }}
{{- $quorum := dict "ca" "/etc/waymaker/quorum/ca.crt" }}
{{- if .Values.quorum.clientCertificate }}
{{- $_ := set $quorum "cert" "/etc/waymaker/quorum/tls.crt" }}
{{- $_ := set $quorum "key" "/etc/waymaker/quorum/tls.key" }}
{{- end }}
{{- $_ := set $config "quorum" (merge $quorum ($config.quorum | default dict)) }}
{{- end }}
{{- range $key, $value := $config }}
{{- if not (kindIs "map" $value) }}
{{ $key }} = {{ include "waymaker.tomlValue" $value }}
{{- end }}
{{- end }}
{{- range $table, $values := $config }}
{{- if kindIs "map" $values }}

[{{ $table }}]
{{- range $key, $value := $values }}
{{ $key }} = {{ include "waymaker.tomlValue" $value }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* A probe of the HTTP port. Kubernetes has no client certificate, so with client certificates it only opens a connection. */}}
{{- define "waymaker.probe" -}}
{{- if .values.tls.clientCaKey -}}
tcpSocket:
  port: http
{{- else -}}
httpGet:
  path: {{ .path }}
  port: http
  scheme: {{ ternary "HTTPS" "HTTP" (not (empty .values.tls.existingSecret)) }}
{{- end }}
{{- end }}
