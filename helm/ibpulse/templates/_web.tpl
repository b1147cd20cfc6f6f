{{/* How probes and monitors connect to the pods: with or without TLS. */}}

{{- define "ibpulse.webSecret" -}}
{{- if .Values.webConfig.existingSecret }}
{{- .Values.webConfig.existingSecret }}
{{- else if .Values.webConfig.content }}
{{- include "ibpulse.nameWith" (list . "web") }}
{{- end }}
{{- end }}

{{- define "ibpulse.webKey" -}}
{{- .Values.webConfig.existingSecret | empty | ternary "web.yml" .Values.webConfig.key }}
{{- end }}

{{- define "ibpulse.scheme" -}}
{{- $server := .Values.webConfig.content.tls_server_config }}
{{- if or $server (and .Values.webConfig.existingSecret .Values.webConfig.tls) }}https{{ else }}http{{ end }}
{{- end }}

{{/* "true" if every client needs a certificate, including the probes. */}}
{{- define "ibpulse.requiresClientCertificate" -}}
{{- $server := .Values.webConfig.content.tls_server_config | default dict }}
{{- if or (eq ($server.client_auth_type | default "") "RequireAndVerifyClientCert") (and .Values.webConfig.existingSecret .Values.webConfig.requiresClientCertificate) }}true{{ end }}
{{- end }}

{{/* One probe, as (dict "of" . "path" .. "times" ..). */}}
{{- define "ibpulse.probe" -}}
{{- if include "ibpulse.requiresClientCertificate" .of -}}
tcpSocket:
  port: metrics
{{- else -}}
httpGet:
  path: {{ .path }}
  port: metrics
  scheme: {{ include "ibpulse.scheme" .of | upper }}
{{- end }}
{{ toYaml .times }}
{{- end }}

{{/* The endpoint of a monitor, as (dict "of" . "monitor" .Values.podMonitor). */}}
{{- define "ibpulse.endpoint" -}}
{{- $monitor := .monitor }}
{{- $name := list "__meta_kubernetes_pod_node_name" }}
{{- $own := list (dict "sourceLabels" $name "targetLabel" "node") }}
{{- if eq $monitor.instance "node" }}{{ $own = append $own (dict "sourceLabels" $name "targetLabel" "instance") }}{{ end }}
{{- $endpoint := dict
  "port" "metrics"
  "path" "/metrics"
  "scheme" (include "ibpulse.scheme" .of)
  "interval" $monitor.interval
  "scrapeTimeout" $monitor.scrapeTimeout
  "relabelings" (concat $own $monitor.relabelings) }}
{{- range $name := list "tlsConfig" "basicAuth" "metricRelabelings" }}
{{- with get $monitor $name }}{{ $_ := set $endpoint $name . }}{{ end }}
{{- end }}
{{- toYaml (mergeOverwrite $endpoint $monitor.extraEndpoint) }}
{{- end }}
