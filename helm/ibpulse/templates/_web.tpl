{{/* How the pods are protected, and how probes and monitors connect to them. A web configuration is `webConfig` or that of the gateway. */}}

{{/* The Secret of a configuration file, if there is one, as (dict "of" . "config" .Values.webConfig "ending" "web"). */}}
{{- define "ibpulse.fileSecret" -}}
{{- if .config.existingSecret }}
{{- .config.existingSecret }}
{{- else if .config.content }}
{{- include "ibpulse.nameWith" (list .of .ending) }}
{{- end }}
{{- end }}

{{- define "ibpulse.webSecret" -}}
{{- include "ibpulse.fileSecret" (dict "of" . "config" .Values.webConfig "ending" "web") }}
{{- end }}

{{/* The scheme of pods with a web configuration. */}}
{{- define "ibpulse.scheme" -}}
{{- if or .content.tls_server_config (and .existingSecret .tls) }}https{{ else }}http{{ end }}
{{- end }}

{{/* "true" if a web configuration requires a certificate of every client, including the probes. */}}
{{- define "ibpulse.requiresClientCertificate" -}}
{{- $server := .content.tls_server_config | default dict }}
{{- if or (eq ($server.client_auth_type | default "") "RequireAndVerifyClientCert") (and .existingSecret .requiresClientCertificate) }}true{{ end }}
{{- end }}

{{/* One probe, as (dict "web" .Values.webConfig "port" "metrics" "path" .. "times" ..). */}}
{{- define "ibpulse.probe" -}}
{{- if include "ibpulse.requiresClientCertificate" .web -}}
tcpSocket:
  port: {{ .port }}
{{- else -}}
httpGet:
  path: {{ .path }}
  port: {{ .port }}
  scheme: {{ include "ibpulse.scheme" .web | upper }}
{{- end }}
{{ toYaml .times }}
{{- end }}

{{/* The endpoint of a monitor, as (dict "web" .Values.webConfig "port" "metrics" "monitor" .Values.podMonitor). */}}
{{- define "ibpulse.endpoint" -}}
{{- $monitor := .monitor }}
{{- $endpoint := dict
  "port" .port
  "path" "/metrics"
  "scheme" (include "ibpulse.scheme" .web)
  "interval" $monitor.interval
  "scrapeTimeout" $monitor.scrapeTimeout }}
{{- $own := list }}
{{- with $monitor.instance }}
{{- $name := list "__meta_kubernetes_pod_node_name" }}
{{- $own = list (dict "sourceLabels" $name "targetLabel" "node") }}
{{- if eq . "node" }}{{ $own = append $own (dict "sourceLabels" $name "targetLabel" "instance") }}{{ end }}
{{- end }}
{{- with $monitor.dropLabels }}{{ $own = append $own (dict "action" "labeldrop" "regex" (join "|" .)) }}{{ end }}
{{- with concat $own ($monitor.relabelings | default list) }}{{ $_ := set $endpoint "relabelings" . }}{{ end }}
{{- range $name := list "tlsConfig" "basicAuth" "metricRelabelings" }}
{{- with get $monitor $name }}{{ $_ := set $endpoint $name . }}{{ end }}
{{- end }}
{{- toYaml (mergeOverwrite $endpoint $monitor.extraEndpoint) }}
{{- end }}
