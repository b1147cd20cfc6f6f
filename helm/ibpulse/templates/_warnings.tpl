{{/* The warnings in NOTES.txt. */}}

{{- define "ibpulse.warnings" -}}
{{- $limits := .Values.resources.limits | default dict }}
{{- with $limits.cpu }}
{{- $cores := toString . }}
{{- $used := hasSuffix "m" $cores | ternary (divf (trimSuffix "m" $cores | float64) 1000) ($cores | float64) }}
{{- if lt $used 1.0 }}

WARNING: resources.limits.cpu is {{ . }}. A quota stops the sampler for the rest of each 100 ms, and
its samples are missing. Remove the limit (resources.limits.cpu=null); a request is enough.
{{- end }}
{{- end }}
{{- with $limits.memory }}
{{- $needed := addf 105e6 (mulf 1.1 (include "ibpulse.ringBytes" $ | float64)) }}
{{- if lt (include "ibpulse.bytes" (toString .) | float64) $needed }}

WARNING: resources.limits.memory is {{ . }}. The ring of {{ $.Values.ring.ports }} ports, the daemon, and a capture while it is written
take {{ printf "%.0f" (divf $needed 1e6) }} MB; with less, captures are refused, or the kernel kills the container.
{{- end }}
{{- end }}
{{- $gateway := .Values.gateway }}
{{- $custom := list
  (list "podMonitor" "PodMonitor" .Values.podMonitor.enabled)
  (list "prometheusRule" "PrometheusRule" .Values.prometheusRule.enabled)
  (list "serviceMonitor" "ServiceMonitor" .Values.serviceMonitor.enabled)
  (list "gateway.serviceMonitor" "ServiceMonitor" (and $gateway.enabled $gateway.serviceMonitor.enabled)) }}
{{- range $custom }}
{{- $value := index . 0 }}
{{- $kind := index . 1 }}
{{- if and (index . 2) (not ($.Capabilities.APIVersions.Has (printf "monitoring.coreos.com/v1/%s" $kind))) }}

WARNING: {{ $value }}.enabled, but this cluster has no {{ $kind }} resource: install the Prometheus operator's custom
resource definitions first, or set {{ $value }}.enabled=false.
{{- end }}
{{- end }}
{{- with .Values.prometheusRule }}
{{- if and .enabled (not (and (contains "://" .runbooks) (contains "://" .grafana))) }}

NOTE: links in notifications lead nowhere outside of Grafana. Set prometheusRule.runbooks and prometheusRule.grafana to
addresses that begin with https://.
{{- end }}
{{- end }}
{{- if not (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) }}

NOTE: nothing scrapes the pods yet. With the Prometheus operator, set podMonitor.enabled=true; without it, let Prometheus
scrape the pods with the label app.kubernetes.io/name={{ include "ibpulse.name" . }}, port {{ .Values.port }}.
{{- end }}
{{- if and (eq (include "ibpulse.scheme" .Values.webConfig) "https") (or .Values.podMonitor.enabled .Values.serviceMonitor.enabled) (empty .Values.podMonitor.tlsConfig) }}

WARNING: webConfig turns TLS on, but podMonitor.tlsConfig is empty: Prometheus connects to pods by address and cannot verify
their certificates. Set podMonitor.tlsConfig.ca and podMonitor.tlsConfig.serverName.
{{- end }}
{{- if $gateway.enabled }}
{{- $nodes := .Values.webConfig }}
{{- $protected := or $nodes.existingSecret $nodes.content.basic_auth_users $nodes.content.tls_server_config }}
{{- $asks := or $gateway.nodeConfig.existingSecret $gateway.nodeConfig.content }}
{{- if and $protected (not $asks) }}

WARNING: webConfig protects the nodes, but gateway.nodeConfig is empty, so they may refuse the gateway. Give it the password
and the TLS configuration for asking them.
{{- end }}
{{- if and $asks (not (or $gateway.webConfig.existingSecret $gateway.webConfig.content)) }}

WARNING: gateway.nodeConfig is set, but gateway.webConfig is empty: everyone who can reach the gateway reads the data of all
nodes without a password. Set gateway.webConfig, or restrict the clients with gateway.networkPolicy.from.
{{- end }}
{{- end }}
{{- if eq .Values.captures.volume "hostPath" }}

NOTE: captures are stored in {{ .Values.captures.hostPath }} on each node. Pods do not start if it is missing; create it once:
  install -d -m 0770 -o {{ ternary "root" "65532" .Values.fifo.enabled }} -g 65532 {{ .Values.captures.hostPath }}
{{- end }}
{{- if empty .Values.image.registry }}

NOTE: image.registry is empty: {{ include "ibpulse.image" . }} must already be on the nodes. Otherwise set image.registry to your registry.
{{- end }}
{{- end }}
